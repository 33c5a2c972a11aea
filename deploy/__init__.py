"""Integrations of Headway's decisions with nginx, HAProxy, and Envoy. They import only its client."""
