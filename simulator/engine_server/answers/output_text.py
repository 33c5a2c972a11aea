"""The output of a simulated engine: four-byte words, one per token, and the same words for the same prompt."""

from __future__ import annotations

import math
import random

_WORDS = (
    "the rail car and one can run far with low wait but its own line may bend out past red hill for all who see how "
    "old iron men set any new way now two saw our sun dim fog lift air hum oil lamp dew wet pin rod cog jam bay hub"
)
_TOKENS = tuple(f"{word:<4}" for word in _WORDS.split() if len(word) <= 3)
_PERIOD = 1021
"""A prime larger than any token table, so that consecutive prompts do not produce the same words in step."""
_SCRIPT = tuple(random.Random(20).choices(_TOKENS, k=_PERIOD))
_MEDIAN_TOKENS = 350.0
_SPREAD = 0.6
_MIN_TOKENS, _MAX_TOKENS = 8, 2000


def answer_text(seed: int, first: int, end: int) -> str:
    """Return output tokens `first` … `end` − 1 of the output named by `seed`; each token is four ASCII bytes."""
    return "".join([_SCRIPT[(seed + index) % _PERIOD] for index in range(first, end)])


def natural_tokens(seed: int) -> int:
    """Return the length of the output named by `seed` if it has no limit (log-normal, median 350 tokens)."""
    drawn = random.Random(seed).lognormvariate(math.log(_MEDIAN_TOKENS), _SPREAD)
    return max(_MIN_TOKENS, min(_MAX_TOKENS, round(drawn)))
