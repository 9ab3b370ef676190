"""The node's side of the HTTP door: its process, and what it asks of the node."""
