"""One engine from the gateway's view: adapter, breaker, probe, progress, trust."""
