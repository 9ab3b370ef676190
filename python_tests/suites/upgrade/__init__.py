"""Nodes of a release and of the present version in one cluster: what they understand, and that they do."""
