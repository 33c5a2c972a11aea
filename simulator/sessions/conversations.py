"""People who chat: lengths, turns, and times of reading and typing as published for ShareGPT (SYMPHONY §2.2, §3.1, §4).

73.4 % of conversations have several turns (up to 420); the mean length is 2,200 tokens. A prompt has a median of 25
tokens and a mean of 90, a response a mean of 264. A person reads 238 words per minute at 0.75 words per token. Typing
takes a mean of 11.3 s and a median of 6.9 s, which is the lead of an advisory.
"""

from __future__ import annotations

import math
import random
from itertools import count

from simulator.sessions.turn import NextTurn, Session

_TURNS = (0.839, 1.342)
_MOST_TURNS = 420
_PROMPT = (math.log(25), 1.60)
_ANSWER = (math.log(200), 0.745)
_LEAD = (math.log(6.9), 0.993)
LEAD_MEAN_S = 11.3
_BURST_GAP = (math.log(25), 1.5)
_READ_S_PER_TOKEN = 0.75 * 60 / 238
_LONGEST_PROMPT, _LONGEST_ANSWER = 8_000, 4_000


class Conversations:
    """One person who has one conversation after another. Mutable: the conversation and its position.

    With a stationary start, the person is at a random turn of a conversation that is drawn in proportion to its length,
    because long ones take up most of the time. With a fresh start, the person is at the first turn.
    """

    def __init__(
        self,
        rng: random.Random,
        ids: count[int],
        max_context: int,
        *,
        bursts: bool = False,
        fresh: bool = False,
        lead_s: float | None = None,
        prefill_only: bool = False,
    ) -> None:
        self._rng = rng
        self._ids = ids
        self._max_context = max_context
        self._bursts = bursts
        self._lead_scale = 1.0 if lead_s is None else lead_s / LEAD_MEAN_S
        self._prefill_only = prefill_only
        self._left = 0
        self._answered = 0
        self._session = Session(next(ids))
        self._first = True
        self._fresh = fresh
        if fresh:
            self._left = self._turns()
        else:
            self._join_midway()

    def sessions(self) -> list[Session]:
        """Return the current conversation if it has had a turn."""
        return [self._session] if self._session.context_tokens else []

    def next_turn(self) -> NextTurn:
        """Return the next request; the think time before it depends on the length of the last response."""
        prompt, read = self._prompt(), self._answer()
        answer = self._sent(read)
        if not self._left or self._session.planned_tokens + prompt + answer > self._max_context:
            self._session = Session(next(self._ids))
            self._left = self._turns()
        self._left -= 1
        self._session.planned_tokens += prompt + answer
        lead = min(self._rng.lognormvariate(*_LEAD), 120.0) * self._lead_scale
        gap = self._rng.lognormvariate(*_BURST_GAP)
        think = max(gap, lead) if self._bursts else self._answered * _READ_S_PER_TOKEN + lead
        if self._first:
            self._first = False
            think = lead + self._rng.random() * (10.0 if self._fresh else think)
        self._answered = read
        return NextTurn(
            session=self._session, prompt_tokens=prompt, answer_tokens=answer, after_s=think, lead_s=min(lead, think)
        )

    def _join_midway(self) -> None:
        turns = self._turns()
        while self._rng.random() >= turns / _MOST_TURNS:
            turns = self._turns()
        done = self._rng.randrange(turns)
        self._left = turns - done
        for _ in range(done):
            self._answered = self._answer()
            tokens = self._session.context_tokens + self._prompt() + self._sent(self._answered)
            if tokens > self._max_context:
                break
            self._session.context_tokens = self._session.planned_tokens = tokens
        self._answered = self._answered or self._answer()

    def _turns(self) -> int:
        return min(_MOST_TURNS, math.ceil(self._rng.lognormvariate(*_TURNS)))

    def _prompt(self) -> int:
        if self._prefill_only:
            return 1024
        return min(_LONGEST_PROMPT, math.ceil(self._rng.lognormvariate(*_PROMPT)))

    def _answer(self) -> int:
        return min(_LONGEST_ANSWER, math.ceil(self._rng.lognormvariate(*_ANSWER)))

    def _sent(self, answer_tokens: int) -> int:
        return 1 if self._prefill_only else answer_tokens
