"""Usage by API key: the journal, the budgets, and their messages."""
