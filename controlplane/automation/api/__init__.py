"""The management API for automation."""
