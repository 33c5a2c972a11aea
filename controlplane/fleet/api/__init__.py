"""The management API for the fleet."""
