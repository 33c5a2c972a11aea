"""What answers look like in each API, and the text in them."""
