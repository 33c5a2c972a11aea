"""A simulated engine as a server: vLLM's HTTP API, metrics, and KV events around an engine model."""
