"""Compares one engine's reported hits with its index, and derives the trust in the index."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from gateway.contracts.hit_sample import HitSample
from gateway.engines.hit_pattern import NO_VERDICT, HitVerdict, PoolKeys, hit_verdict
from gateway.traffic.past_moments import PastMoments

WINDOW_S = 300.0
"""Older requests tell nothing any more; an engine that nobody asks for cached prompts is trusted anew."""
MAX_SAMPLES = 64
TOLD_SHARE = 0.05
JUDGED_EVERY_S = 2.0
GAP_S = 10.0
"""Missed events this long before a decision may explain what it did not know."""


class HitWatch:
    """One engine's samples and the verdict on them. Mutable state: all of it.

    The loop's thread judges; samples come from the thread of the request log, which only appends.
    """

    def __init__(self) -> None:
        self.verdict: HitVerdict = NO_VERDICT
        self._samples: deque[HitSample] = deque(maxlen=MAX_SAMPLES)
        self._reported: deque[HitSample] = deque(maxlen=MAX_SAMPLES)
        """Those that tenants tell of, which never push out what the gateway saw."""
        self._gaps = PastMoments()
        self._removals = PastMoments()
        self._counts = (0, 0)
        self._fresh = False
        self._judged_s = float("-inf")

    def note_events(self, counts: Mapping[str, int], now: float) -> None:
        """Look at the counts of the engine's event ledger: when did it miss events, when were blocks removed?"""
        counted = counts.get("gaps", 0) + counts.get("lost", 0), counts.get("BlockRemoved", 0)
        before, self._counts = self._counts, counted
        if counted[0] > before[0]:
            self._gaps.note(now)
        if counted[1] > before[1]:
            self._removals.note(now)

    def gap_near(self, decided_s: float, ended_s: float) -> bool:
        """Return whether events were missed shortly before the decision or until the request's end."""
        return self._gaps.any_between(decided_s - GAP_S, ended_s)

    def removed_between(self, decided_s: float, ended_s: float) -> bool:
        """Return whether the engine told of removed blocks while the request was under way."""
        return self._removals.any_between(decided_s, ended_s)

    def take(self, sample: HitSample) -> None:
        """Take in what one request told."""
        (self._reported if sample.reporter else self._samples).append(sample)
        self._fresh = True

    def recent(self) -> list[HitSample]:
        """Return the samples that count, the oldest first; any thread may ask."""
        return sorted([*self._samples, *self._reported], key=lambda each: each.at_s)

    def judge(self, keys: PoolKeys, now: float) -> bool:
        """Judge anew; returns whether grade or cause changed."""
        for samples in (self._samples, self._reported):
            while samples and now - samples[0].at_s > WINDOW_S:
                samples.popleft()
                self._fresh = True
        if not self._fresh or now - self._judged_s < JUDGED_EVERY_S:
            return False
        self._fresh, self._judged_s = False, now
        before, found = self.verdict, hit_verdict(self.recent(), keys, self.verdict.grade)
        changed = (before.grade, before.cause) != (found.grade, found.cause)
        # Figures that move a little would send every viewer new words twice a second.
        if changed or abs((found.share or 0.0) - (before.share or 0.0)) > TOLD_SHARE:
            self.verdict = found
        return changed

    def forget(self) -> None:
        """Begin anew, as with a new process of the engine or other keys."""
        self._samples.clear()
        self._reported.clear()
        self.verdict = NO_VERDICT
        self._counts = (0, 0)
        self._fresh = False
