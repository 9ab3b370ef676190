"""What clients and neighbours do that mean harm, against real nodes, while a well-behaved client commits."""
