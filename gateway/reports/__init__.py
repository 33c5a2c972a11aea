"""Reports of a gateway to the control plane: decisions, traffic, samples, trials."""
