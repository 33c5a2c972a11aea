"""Formulas for the duration of prefill and decode, and how they are fitted."""
