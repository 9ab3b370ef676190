"""Handovers of a real cluster under load: how many outcomes stay unknown, and how long clients wait."""
