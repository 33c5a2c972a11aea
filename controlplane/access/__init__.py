"""API keys, tenants, people, sessions, and audit search."""
