"""``txha certificates``."""
