"""Cluster calls: who may initiate one, what each node runs, and who knows which nodes have it (seed 000)."""
