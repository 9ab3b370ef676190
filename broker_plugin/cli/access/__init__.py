"""``txha users``: who may use the cluster."""
