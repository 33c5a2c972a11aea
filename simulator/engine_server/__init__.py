"""A simulated engine as a server: vLLM's HTTP surface, metrics and KV events around simulator.engine_models.fifo_engine."""
