"""The container image: its steps, and its health check."""
