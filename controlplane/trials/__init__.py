"""Trials of draft policies (what-if, shadow, and canary), and the holdback of a pool."""
