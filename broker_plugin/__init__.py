"""Where the core plugs in: embedded broker, AMQP 0-9-1 server, node, command line, administration."""
