"""One engine as seen by the gateway: adapter, breaker, probe, progress, trust."""
