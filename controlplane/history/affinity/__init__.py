"""What gateways tell of which prompts go where, for pages and the API."""
