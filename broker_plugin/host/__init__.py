"""The SPI: a broker in a process of its own, whose transactions this node replicates (docs/hosts.md)."""
