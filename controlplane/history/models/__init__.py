"""Models of the past: roll-ups and their rosters."""
