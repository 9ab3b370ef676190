"""Events as rows of ``recovery.pipeline.schema``, and the exact events of such rows again.

``builder`` gathers frames; ``walker`` finds out what they say, ``kinds`` and ``numbering`` fill a ``sheet`` with it.
"""
