"""How many engines a pool should have."""
