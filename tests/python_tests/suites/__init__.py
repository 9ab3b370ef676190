"""Of the suites that are commands of their own."""
