"""What has passed the commit point, for those who follow it on this node."""
