"""Hash rings over the engines of a pool, and the keys that prompts have on them."""
