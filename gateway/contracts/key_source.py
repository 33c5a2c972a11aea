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
NONE = "none"
"""`prefix`: the tokenizer was late, and these are keys of leading blocks that it tokenized before, in other prompts."""

COUNTED = (TOKENS, TOKENIZED, REMEMBERED)
"""Those under which the prompt's length is counted, not guessed."""
