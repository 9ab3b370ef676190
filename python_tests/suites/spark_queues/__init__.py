"""Queue to Spark to queue, with somebody killed at every step: each message comes out once."""
