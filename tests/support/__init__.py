"""What several tests use: clusters in memory, fake disks, bounds, examples."""
