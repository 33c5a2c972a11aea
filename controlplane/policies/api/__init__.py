"""The management API for policies."""
