"""The command line of simulate: options, tables."""
