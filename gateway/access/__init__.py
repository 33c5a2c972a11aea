"""Who may ask for what: API keys, quotas, isolation domains."""
