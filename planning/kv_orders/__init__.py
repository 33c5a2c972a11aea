"""Which KV blocks should be moved from one node manager to another before somebody needs them there."""
