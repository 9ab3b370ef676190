"""AMQP 0-9-1: codec, connection and channel state machines without io, and the asyncio server around them."""
