"""Deterministic simulation of whole clusters: the very cores, queues and log records, on virtual time.

One seed is one run, the same to the letter every time. ``world`` is time and chance, ``fake_files`` and ``disk`` what
survives a crash, ``network`` and ``coordination`` what lies between nodes, ``process`` one node, ``clients`` who uses
them, ``faults`` what breaks, ``truth`` what really happened, ``checkers`` the promises P1 to P12, one class each,
``run`` one seed from its beginning to its verdict, ``shrink`` the shortest schedule that still fails.
"""
