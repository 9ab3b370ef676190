"""Cluster calls at one node: what it keeps of them, the actions that change its surroundings, what operators ask."""
