"""Models of proved savings."""
