"""`/api/v1/kv_nodes`."""
