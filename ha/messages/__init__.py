"""What nodes say to each other, and how large it is."""
