"""The Policies pages: list, comparison, publishing, and how a version stands."""
