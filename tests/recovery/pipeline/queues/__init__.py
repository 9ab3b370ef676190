"""Queues as streams, in and out: most of it needs a broker and no Spark."""
