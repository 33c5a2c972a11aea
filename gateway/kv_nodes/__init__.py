"""Node managers as the gateway sees them: what each holds, and what engines are told to load from them."""
