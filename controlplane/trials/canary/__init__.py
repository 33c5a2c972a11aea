"""Canaries: intake of their arms' results, stored evaluations, and the arms of a pool."""
