"""Numbers of prefill and decode engines."""
