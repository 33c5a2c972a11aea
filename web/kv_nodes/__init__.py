"""The KV store page: node managers, their tiers, and transfers between nodes and engines."""
