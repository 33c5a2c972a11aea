"""Jobs of automation: engine health, scaling, prefill/decode, rebalancing, engine actions."""
