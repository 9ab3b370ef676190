"""Measurements that can be repeated; each compares its candidates in one run, in turn."""
