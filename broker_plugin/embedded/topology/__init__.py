"""Exchanges, bindings, routing, and the locks of names."""
