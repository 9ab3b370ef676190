"""Tests of the servers that tests start."""
