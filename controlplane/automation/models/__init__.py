"""Models of automation: engine health, engine actions, plans, a pool's switches."""
