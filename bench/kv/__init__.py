"""Benchmarks of node managers: KV blocks kept, moved and loaded, also under faults."""
