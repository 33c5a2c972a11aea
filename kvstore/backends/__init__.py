"""Stores of KV payloads behind one protocol."""
