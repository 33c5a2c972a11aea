"""The management API for the request log."""
