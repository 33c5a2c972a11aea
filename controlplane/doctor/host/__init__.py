"""Questions about this machine."""
