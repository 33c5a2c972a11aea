"""Connector between a real engine (vLLM) and the KV store, and its messages with the gateway."""
