"""The hot path as machine code: that it is built, chosen, and the same."""
