"""Connector between an engine (vLLM) and the KV store, and its messages to and from the gateway."""
