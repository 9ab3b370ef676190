"""The audit: every node's log against the others' and against the clients' own history (docs/audit.md).

Theory of operation. All logs are copies of one stream (``stream``), so the audit asks two questions. Do the copies
agree? Sums over buckets of positions say so, and only where they differ is anything looked at closer (``differences``).
And could the stream have come about if the promises hold? That is asked of one copy of it: of its transactions
(``transactions``), of the messages on their way (``messages``), and of what clients were told (``clients``).

A simpler version would put each transaction of each node together and compare those. It costs the number of nodes times
as much, and does not notice what is no part of a transaction.
"""
