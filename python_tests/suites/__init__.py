"""Suites and testers against running clusters."""
