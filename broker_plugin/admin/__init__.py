"""Administration of a node: a line of JSON each way over loopback, with a token that only the node's owner can read."""
