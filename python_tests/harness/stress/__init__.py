"""``txha stress``: load and faults against a cluster, every client operation on record, and a verdict.

``scenario`` runs rounds on a ``site``: ``own`` is a cluster that the suite starts itself, ``foreign`` are brokers by
URL. ``schedule`` says which fault comes when, ``faults`` what each one does, by way of ``network``, ``disk``,
``syncs`` and ``clock``. ``record`` writes the history, ``stores`` reads the nodes' logs, ``report`` and ``terminal``
show the result.
"""
