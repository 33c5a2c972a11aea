"""The live fleet as this process hears of it from all gateways."""
