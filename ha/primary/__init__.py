"""The primary: writes the stream, decides transactions and branches, serves its backups, hands over."""
