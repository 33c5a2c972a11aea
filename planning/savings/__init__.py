"""Ledger of proved savings: the parts of a day that are replayed, and what a day saved."""
