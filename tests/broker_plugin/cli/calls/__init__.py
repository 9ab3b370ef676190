"""``txha calls`` against nodes that answer as told."""
