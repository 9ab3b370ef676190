"""RabbitMQ's files of definitions: what of one can be honoured here, and what is here as one.

``document`` is the shape of a file, ``state`` what a cluster holds, ``reading`` turns a file into steps, ``writing`` a
state into a file. Nothing here asks a node: the command line and the HTTP door do.
"""
