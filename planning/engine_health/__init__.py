"""Detect unhealthy engines by their progress."""
