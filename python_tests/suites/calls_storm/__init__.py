"""Cluster calls in a storm: three real nodes make them at once and are killed; and how fast one catches up."""
