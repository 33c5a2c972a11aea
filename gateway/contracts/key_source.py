"""How the block keys of a prompt were made, as decision records and metrics name it."""

from __future__ import annotations

TOKENS = "tokens"
TOKENIZED = "tokenized"
REMEMBERED = "remembered"
BYTES = "bytes"
HASHES = "hashes"
MEDIA = "media"
UNMATCHED = "unmatched"
PREFIX = "prefix"
"""The tokenizer was late or failed. These are keys of leading blocks that were tokenized before, in other prompts."""
NONE = "none"

COUNTED = (TOKENS, TOKENIZED, REMEMBERED)
"""Those under which the prompt's length is counted, not guessed."""
