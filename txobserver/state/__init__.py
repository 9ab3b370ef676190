"""What the applied prefix of the stream leads to: the contents of queues, and open transactions."""
