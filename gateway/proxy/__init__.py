"""The OpenAI-compatible proxy: forward a request, relay its answer, retry on another engine."""
