"""The command ``txha``."""
