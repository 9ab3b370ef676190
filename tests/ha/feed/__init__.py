"""Tests of ha/feed."""
