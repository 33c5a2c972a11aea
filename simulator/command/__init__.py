"""The command line of `simulate`: options and tables."""
