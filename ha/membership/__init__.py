"""Who is in the cluster and who leads it: the coordination record, the lease, election, the ready set."""
