"""What survives a crash, and what is made of it: log segments, LMDB state, readers of the log."""
