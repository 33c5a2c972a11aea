"""The management API of policies."""
