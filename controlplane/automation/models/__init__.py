"""Models of automation: engine health, engine actions, plans, and pool switches."""
