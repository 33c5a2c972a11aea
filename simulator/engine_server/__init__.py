"""A simulated engine as a server: vLLM's HTTP surface, metrics and KV events around one of simulator.engine_models."""
