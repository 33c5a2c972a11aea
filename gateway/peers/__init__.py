"""Calls between gateways."""
