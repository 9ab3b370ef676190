"""The coordination record in etcd, for nodes on several hosts."""
