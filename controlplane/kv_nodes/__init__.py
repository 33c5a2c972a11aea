"""Node managers as the control plane knows them: registered by themselves, published to gateways, seen by people."""
