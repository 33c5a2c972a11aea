"""Sessions with several turns: systems that keep KV caches, and advisories (SYMPHONY)."""
