"""Sessions that announce their next request: their state, the KV moved for them, and its usefulness."""
