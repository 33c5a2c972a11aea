"""Sessions that come back: systems that keep their KV caches, and advisories (SYMPHONY)."""
