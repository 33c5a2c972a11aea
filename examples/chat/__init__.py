"""A chat page that sends advisories while its user types, so that the conversation's KV arrives before the request."""
