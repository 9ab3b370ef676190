"""``txha users``, ``vhosts``, ``permissions``, ``topic-permissions``, ``limits``: who may use what of the cluster."""
