"""The router's ledger of the fleet: the view, reservations, and in-flight work."""
