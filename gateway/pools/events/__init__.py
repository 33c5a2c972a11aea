"""An engine's KV events, from the socket to the prefix index."""
