"""Commands about transactions and branches."""
