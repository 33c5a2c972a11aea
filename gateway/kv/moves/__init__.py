"""Moves of KV blocks between node managers: their execution and their accounting."""
