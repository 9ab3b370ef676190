"""Adapters of the coordination record: SQLite, in a process and a thread of its own."""
