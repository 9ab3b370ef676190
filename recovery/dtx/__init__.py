"""Distributed transactions as a client takes part in them: the wire of class dtx, and PEP 249's methods for two makes.

``with_pika`` and ``with_aio_pika`` are for use; each imports its make, which is an optional extra (``txha[clients]``).
"""
