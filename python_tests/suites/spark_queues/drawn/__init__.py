"""Cases drawn by seed: pairs of crashes, hung nodes, operators and take-overs at drawn steps, and every row counted."""
