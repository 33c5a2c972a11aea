"""The Policies pages: list, comparison, publishing, and version state."""
