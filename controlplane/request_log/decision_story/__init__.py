"""Describes one recorded decision: its inputs, reasons, outcome, remedy, and certainty."""
