"""The management API of the fleet."""
