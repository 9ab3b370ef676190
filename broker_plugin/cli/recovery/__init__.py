"""Commands for a cluster that has crashed."""
