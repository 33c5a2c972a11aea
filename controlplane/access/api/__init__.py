"""The management API of access and audit."""
