"""A chat whose page tells Switchyard that its user types, so that the conversation's KV is there before the request."""
