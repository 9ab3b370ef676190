"""The HTTP door: a process beside a node, which answers operators and what collects metrics.

It holds no state. It asks the node over the loopback port of its administration, with the token that only the owner of
the node can read, and passes on whose request it is.
"""
