"""The vocabulary that every floor above speaks: ids, events, frames, configuration, tx-queues, store interfaces.

Everything here is pure: no sockets, no clock, no randomness, no awaits.
"""
