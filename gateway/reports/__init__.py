"""What a gateway tells the control plane: decisions, traffic, samples, trials."""
