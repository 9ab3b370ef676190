"""What a client has under way: its connection, its channels, their confirms."""
