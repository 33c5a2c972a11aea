"""The decision chain: its protocol, and the links before the router."""
