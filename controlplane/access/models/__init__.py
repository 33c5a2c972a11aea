"""Models of access: API keys, console sessions, login allowances, tenants."""
