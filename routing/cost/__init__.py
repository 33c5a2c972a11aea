"""Duration of prefill and decode: formulas, and how they are fitted."""
