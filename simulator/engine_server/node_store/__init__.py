"""Storing a simulated engine's blocks on its node manager, and loading blocks from node managers."""
