"""Queue to Spark to queue, with a process killed at every step: each message comes out once."""
