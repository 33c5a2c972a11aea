"""The Policies pages: list, comparison, publishing, and the state of a version."""
