"""What planners are told of one pool, and measures over it."""
