"""A node's block catalog, and the transactions that change it."""
