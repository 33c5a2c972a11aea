"""Hash rings over the engines of a pool, and the keys of prompts on them."""
