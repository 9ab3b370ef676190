"""Commands that try the product: demo, stress."""
