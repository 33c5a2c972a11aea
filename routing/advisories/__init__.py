"""Rules for advisories: which engine a session that will ask soon should get, and whether to prefetch its KV cache."""
