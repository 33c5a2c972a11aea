"""Node managers in the control plane: self-registered, published to gateways, and shown to people."""
