"""Several regions: what their gateways tell each other, who gets a request, and how it travels."""
