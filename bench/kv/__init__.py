"""Benchmarks of node managers: storing, moving, and loading KV blocks, also under faults."""
