"""TLS: the certificates of a node, which may change while it runs, and connections that are encrypted by them."""
