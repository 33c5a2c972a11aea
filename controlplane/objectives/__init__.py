"""Objectives: the share of requests that should be on time, attainment, and what is left of the error budget."""
