"""The KV store page: node managers, their tiers, and what moves between them and the engines."""
