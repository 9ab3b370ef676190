"""What clients ask of queues, exchanges, bindings, consumers and branches as a whole, and what the stream decides."""
