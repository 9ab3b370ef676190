"""How brokers agree: pure state machines, the promotion rule, the coordination interface.

Nothing here opens a socket, reads a clock, draws a random number or awaits: messages, ticks and reports come in,
effects go out (``ha.effects``), and the shell in ``broker_plugin.node`` carries them out.
"""
