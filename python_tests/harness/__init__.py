"""Clusters, load, history, judge and faults, for demo, stress test and suites."""
