"""Every way to read a node's log: by directory or by address, from any offset."""
