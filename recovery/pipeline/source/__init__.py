"""The Spark data source ``txha``: transaction logs of directories and of running nodes, as batches and streams."""
