"""API keys, tenants, people, sessions, and the search of the audit."""
