"""How a prompt's block keys were made, as named in decision records and metrics."""

from __future__ import annotations

TOKENS = "tokens"
TOKENIZED = "tokenized"
REMEMBERED = "remembered"
BYTES = "bytes"
HASHES = "hashes"
MEDIA = "media"
UNMATCHED = "unmatched"
PREFIX = "prefix"
"""The tokenizer was late or failed. The keys are those of leading blocks that were tokenized before in other prompts.
"""
NONE = "none"

COUNTED = (TOKENS, TOKENIZED, REMEMBERED)
"""Sources for which the prompt's length is counted, not guessed."""
