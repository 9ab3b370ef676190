"""What a client sees: suites, judges and measurements that know nothing of the broker's inside."""
