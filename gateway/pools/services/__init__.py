"""Named services: pools in order, and an external provider behind them."""
