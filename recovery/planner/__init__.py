"""What is to become of a crashed cluster: its stores are surveyed, a plan is made and carried out, and then settled."""
