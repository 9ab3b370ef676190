"""Interfaces between the core and what stands around it: the ledger that a host broker uses, and the store."""
