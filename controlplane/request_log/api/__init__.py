"""The management API of the request log."""
