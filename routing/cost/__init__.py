"""How long prefill and decode take: formulas, and how they are fitted."""
