"""Canaries: results of their arms, stored evaluations, and the arms of a pool."""
