"""Encrypted connections."""
