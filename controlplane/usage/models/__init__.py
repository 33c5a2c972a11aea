"""Models of usage: budgets, prices, and the ledger."""
