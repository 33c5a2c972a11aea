"""Foundations of the gateway: settings, logs, metrics, background tasks."""
