"""Orders that move KV blocks between node managers, carried out and accounted for."""
