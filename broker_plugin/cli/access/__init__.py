"""``txha users``, ``vhosts``, ``permissions``, ``topic-permissions``, ``limits``: who may use the cluster, and for what."""
