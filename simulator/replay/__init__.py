"""Replays a trace against a real OpenAI-compatible server: python -m simulator.replay."""
