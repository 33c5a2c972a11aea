"""Models of node managers and KV moves."""
