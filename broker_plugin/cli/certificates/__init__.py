"""``txha certificates``: a small authority for people who have none."""
