"""A second host: a tiny AMQP broker in a process of its own, written from docs/hosts.md, on ``txha.spi`` and pamqp."""
