"""``format("txha-queue")``: queues as Spark streams, in and out.

The sink is exactly once, on distributed transactions: ``decisions`` is its heart, and says why it is right. The source
hands each message to one batch, by the places of messages: see ``places``. ``docs/spark_queues.md`` is for users.
"""
