"""Node managers in the control plane: self-registered, published to gateways, shown to people."""
