"""Whether a candidate is worse than its baseline, and the resulting action."""
