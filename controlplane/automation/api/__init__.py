"""The management API of automation."""
