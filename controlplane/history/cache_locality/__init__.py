"""Cache locality reports of gateways, for pages and the API."""
