"""Example programs for Headway's customers. They use only its API."""
