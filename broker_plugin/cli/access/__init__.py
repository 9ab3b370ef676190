"""``txha users``, ``permissions``, ``topic-permissions``, ``limits``: who may use the cluster, and what for."""
