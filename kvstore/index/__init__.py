"""The prefix index: blocks held by each engine."""
