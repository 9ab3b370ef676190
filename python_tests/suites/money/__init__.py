"""Money between the databases of two applications, by way of a broker, while everything is killed."""
