"""Response formats of each API, and the generated text."""
