"""``txha calls``: what is changed at all nodes, in one order, and which nodes have it."""
