"""Models of automation: engine health, engine orders, plans, a pool's switches."""
