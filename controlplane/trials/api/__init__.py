"""The management API of trials."""
