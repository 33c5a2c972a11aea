"""Rules for advisories: choose an engine for a session's next request, and decide whether to prefetch its KV cache."""
