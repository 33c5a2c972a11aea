"""Models of the fleet history: roll-ups and their rosters."""
