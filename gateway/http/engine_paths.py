"""Paths outside `/v1/` that are passed on to engines."""

from __future__ import annotations

TOKENIZE, DETOKENIZE = "/tokenize", "/detokenize"
SCORE, RERANK = "/score", "/rerank"
RERANK_2, POOLING, CLASSIFY = "/v2/rerank", "/pooling", "/classify"
ENGINE_PATHS = frozenset((TOKENIZE, DETOKENIZE, SCORE, RERANK, RERANK_2, POOLING, CLASSIFY))


def takes_prompts(path: str) -> bool:
    """Return whether bodies at this path are prompts, which may be long."""
    return path.startswith("/v1/") or path in ENGINE_PATHS
