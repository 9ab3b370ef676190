"""Hosts of a test's own on one machine, for what is written for several hosts."""
