"""The commands of ``txha`` that try the product; the command line finds them as entry points ``txha.commands``."""
