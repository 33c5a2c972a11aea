"""A chat whose page tells Headway that its user types, so that the conversation's KV is there before the request."""
