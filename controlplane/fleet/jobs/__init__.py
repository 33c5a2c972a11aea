"""Jobs of the fleet: probing, engine addresses, learned costs."""
