"""Shared by the automation jobs: observations, modes, and rounds that are stored once."""
