"""What the users of this broker's clients may do, and how much of it."""
