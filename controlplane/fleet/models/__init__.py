"""Models of the fleet: regions, pools, engines, learned costs."""
