"""Measurements that anyone can repeat; each compares its candidates in one run, in turn."""
