"""KV events as engines publish them, re-keyed to our block keys."""
