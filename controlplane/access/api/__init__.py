"""The management API for access and audit."""
