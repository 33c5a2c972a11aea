"""The live fleet, merged from the samples of all gateways."""
