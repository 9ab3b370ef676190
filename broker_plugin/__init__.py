"""Where it plugs in: embedded broker, AMQP 0-9-1 server, node, command line, administration."""
