"""Gateways' reports on cache locality, for pages and the API."""
