"""``txha users``, ``vhosts``, ``permissions``, ``topic-permissions``, ``limits``, ``policies``."""
