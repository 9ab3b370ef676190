"""The coordination record in etcd, for nodes on several hosts.

gRPC's own handling of forks is off in a process that speaks with etcd. It was made for children that go on to use gRPC;
what is forked here reads a store and ends (``recovery.store.child``). Beside a busy channel it hung the parent, or
ended the child, as a damaged page would (``a_fork_beside_a_busy_channel``).
"""

import os

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"  # read when gRPC is first used
