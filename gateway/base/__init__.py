"""What every part of the gateway stands on: settings, logs, metrics, background tasks."""
