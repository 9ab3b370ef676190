"""Encrypted connections: certificates, what they say, and when they are read anew."""
