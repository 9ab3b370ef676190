"""A model-based tester of coordinators: drawn programs over a fake PostgreSQL and model brokers, and one truth."""
