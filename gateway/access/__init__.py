"""Authentication and limits: API keys, quotas, isolation domains."""
