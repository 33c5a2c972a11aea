"""The container image: its build steps and its health check."""
