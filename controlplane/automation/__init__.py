"""Shared code of the automation jobs: observations, modes, and rounds that are stored exactly once."""
