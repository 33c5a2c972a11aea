"""Actuators, which start, stop, and change engines: one file per kind, behind actuator.Actuator."""
