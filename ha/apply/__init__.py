"""The replica: what is taken in, voted on and applied, alike on primary and backup."""
