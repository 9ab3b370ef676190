"""What a node tells people: typed events, their sentences, and the two formats of its log."""
