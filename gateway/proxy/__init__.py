"""The OpenAI-compatible proxy: forward a request, relay its answer, retry elsewhere."""
