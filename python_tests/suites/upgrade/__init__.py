"""Nodes of a release and of the present version in one cluster: what they understand of each other, and that they do."""
