"""Usage and money: the ledger, budgets, and prices."""
