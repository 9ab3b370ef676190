"""A node's store: the log, the queue state in LMDB, the identity, and the files that they rest on."""
