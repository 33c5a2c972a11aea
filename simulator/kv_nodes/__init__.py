"""Node managers under the virtual clock: the production catalog and ledger, and links that carry what they can."""
