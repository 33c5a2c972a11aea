"""Actuators start, stop, and change engines. Each kind has one class that implements actuator.Actuator."""
