"""Readers of other products' logs: each turns one line into what it states about one request."""
