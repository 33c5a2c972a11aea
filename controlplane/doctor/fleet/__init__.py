"""Questions about the fleet and who looks after it."""
