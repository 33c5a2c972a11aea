"""Node managers under the virtual clock: the production catalog and ledger, and links with limited bandwidth."""
