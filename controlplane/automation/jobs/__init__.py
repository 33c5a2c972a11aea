"""Automation jobs: engine health, scaling, prefill/decode ratio, rebalancing, engine actions."""
