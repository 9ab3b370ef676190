"""Coordinators on real resources: a database and a cluster, and what happens when any of them dies."""
