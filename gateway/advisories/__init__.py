"""Sessions that announce their next request: their state, the KV moved for them, and whether that was useful."""
