"""Pages of usage, budgets, and prices."""
