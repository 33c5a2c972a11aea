"""Actuators, which start, stop, and change engines: one class per kind, behind actuator.Actuator."""
