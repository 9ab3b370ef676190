"""AMQP 0-9-1 without input and output: codec, methods, connections and channels, class dtx."""
