"""The connector of a real engine (vLLM) to the store of KV payloads, and what gateway and engine say to each other."""
