"""Mutation testing: small faults in the product, which the tests have to find (docs/mutants.md)."""
