"""Integration with Envoy and the Gateway API: an endpoint picker over ext_proc (`python -m deploy.envoy`)."""
