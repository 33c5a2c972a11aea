"""Node managers from the gateway's view: their contents, and the loads that engines are instructed to do."""
