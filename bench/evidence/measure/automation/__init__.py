"""Measurements on changing the fleet: scaling, roles, health, rebalancing, and the live program."""
