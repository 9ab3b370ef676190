"""Queues and their consumers."""
