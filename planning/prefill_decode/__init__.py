"""How many engines prefill and how many decode."""
