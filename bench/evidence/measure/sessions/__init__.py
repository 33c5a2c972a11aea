"""Sessions with several turns: systems that keep their KV caches, and advisories (SYMPHONY)."""
