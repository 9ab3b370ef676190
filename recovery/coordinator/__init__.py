"""Coordinators of distributed transactions: the decision log, two-phase commit over it, and the recovery run."""
