"""Two workloads, each one schedule of chat bodies: conversations, and long answers to one hot prefix."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SYSTEM_PROMPTS = 6
SYSTEM_WORDS = (150, 700)
TURN_WORDS = (30, 250)
DOCUMENT_WORDS = (1200, 3800)
DOCUMENT_SHARE = 0.2
"""Share of conversations that begin with a document."""
MAX_WORDS = 4000
"""Maximum words in a request. A word is about two tokens of the tiny tokenizer, and the context has 8,192."""
MAX_TURNS = 6
BURST = 4
"""Conversations that start at once."""
ANSWER_TOKENS = 16
HOT_WORDS, HOT_ANSWER_TOKENS = 2000, 128
_TEXT = Path(__file__).resolve().parents[3] / "docs/kv-store.md"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: its time, as a multiple of the mean gap between requests, and its messages."""

    at: float
    messages: list[dict[str, str]]
    answer_tokens: int = ANSWER_TOKENS

    def body(self, model: str, run: str) -> bytes:
        """Return the body; `run` begins the prompt, so that no run hits the cache of another."""
        first, *others = self.messages
        system = {"role": "system", "content": f"{run} {first['content']}"}
        fields = {"model": model, "messages": [system, *others], "max_tokens": self.answer_tokens, "ignore_eos": True}
        usage = {"stream": True, "stream_options": {"include_usage": True}, "temperature": 0}
        return json.dumps({**fields, **usage}).encode()


def conversations(count: int, seed: int) -> list[Asked]:
    """Return the first `count` requests of conversations that begin in bursts, in order of time.

    Answers within the prompts are written in advance, so that every router gets the same prompts at the same times.
    """
    rng = random.Random(seed)
    vocabulary = _vocabulary()
    systems = [_text(rng, vocabulary, SYSTEM_WORDS) for _ in range(SYSTEM_PROMPTS)]
    turns: list[tuple[float, list[dict[str, str]]]] = []
    at = 0.0
    while len(turns) < 2 * count:
        at += rng.expovariate(1.0)
        for _ in range(rng.randint(1, 2 * BURST - 1)):
            turns += _turns(rng, vocabulary, rng.choices(systems, [1 / (1 + n) for n in range(len(systems))])[0], at)
    turns.sort(key=lambda item: item[0])
    scale = count / turns[count - 1][0]
    return [Asked(at * scale, messages) for at, messages in turns[:count]]


def hot_prefix(count: int, seed: int) -> list[Asked]:
    """Return `count` short questions about one long system prompt, with long answers, in order of time."""
    rng, vocabulary, at, asked = random.Random(seed), _vocabulary(), 0.0, []
    system = {"role": "system", "content": _text(rng, vocabulary, (HOT_WORDS, HOT_WORDS))}
    for _ in range(count):
        at += rng.expovariate(1.0)
        question = {"role": "user", "content": _text(rng, vocabulary, TURN_WORDS)}
        asked.append(Asked(at, [system, question], HOT_ANSWER_TOKENS))
    return [Asked(item.at * count / at, item.messages, item.answer_tokens) for item in asked]


def _vocabulary() -> list[str]:
    return sorted({word for word in _TEXT.read_text().split() if word.isalpha()})


def _turns(
    rng: random.Random, vocabulary: Sequence[str], system: str, at: float
) -> list[tuple[float, list[dict[str, str]]]]:
    messages = [{"role": "system", "content": system}]
    if rng.random() < DOCUMENT_SHARE:
        messages.append({"role": "user", "content": _text(rng, vocabulary, DOCUMENT_WORDS)})
        messages.append({"role": "assistant", "content": "Read."})
    turns = []
    for _ in range(rng.randint(1, MAX_TURNS)):
        messages = [*messages, {"role": "user", "content": _text(rng, vocabulary, TURN_WORDS)}]
        if sum(len(message["content"].split()) for message in messages) > MAX_WORDS:
            break
        turns.append((at, messages))
        at += rng.expovariate(1.0)
        messages = [*messages, {"role": "assistant", "content": _text(rng, vocabulary, (10, 20))}]
    return turns


def _text(rng: random.Random, vocabulary: Sequence[str], words: tuple[int, int]) -> str:
    return " ".join(rng.choices(vocabulary, k=rng.randint(*words)))
