"""The embedded broker: exchanges, queues, channels and transactions with RabbitMQ's semantics. Pure: no io, no clock.

Everything durable goes through a ``txobserver.ports.ledger.Ledger`` and is seen only when the ledger tells of it.
"""
