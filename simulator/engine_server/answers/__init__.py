"""The form of answers in each API, and their text."""
