"""Tests of the log of a node."""
