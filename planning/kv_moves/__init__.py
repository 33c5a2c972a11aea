"""Which KV blocks should be moved from one node manager to another before they are needed there."""
