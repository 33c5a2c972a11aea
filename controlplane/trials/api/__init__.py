"""The management API for trials."""
