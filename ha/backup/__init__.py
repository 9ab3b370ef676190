"""A backup follows the primary."""
