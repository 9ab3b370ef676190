"""Commands that make, run and change a cluster."""
