"""The live fleet, from the samples of all gateways."""
