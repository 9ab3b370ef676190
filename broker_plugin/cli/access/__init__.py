"""``txha users``, ``vhosts``, ``permissions``, ``limits``, ``policies``, and what is like them."""
