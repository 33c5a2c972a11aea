"""Paths whose bodies are prompts: engine paths and decision paths."""

from __future__ import annotations

ROUTE, BATCH = "/api/v1/route", "/api/v1/route/batch"
TOKENIZE, DETOKENIZE = "/tokenize", "/detokenize"
SCORE, RERANK = "/score", "/rerank"
RERANK_2, POOLING, CLASSIFY = "/v2/rerank", "/pooling", "/classify"
ENGINE_PATHS = frozenset((TOKENIZE, DETOKENIZE, SCORE, RERANK, RERANK_2, POOLING, CLASSIFY))


def takes_prompts(path: str) -> bool:
    """Return whether bodies at this path are prompts, which can be long."""
    return path.startswith(("/v1/", ROUTE)) or path in ENGINE_PATHS
