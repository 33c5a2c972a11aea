"""A chat page that advises Headway while its user types, so that the conversation's KV arrives before the request."""
