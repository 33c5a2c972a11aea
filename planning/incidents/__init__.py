"""Incidents: one episode per trouble, its likely causes, and the requests that it hit."""
