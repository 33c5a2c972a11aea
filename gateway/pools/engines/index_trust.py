"""Compares one engine's reported hits with its index, and derives the trust in the index."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from gateway.contracts.hit_sample import HitSample
from gateway.pools.engines.hit_pattern import NO_VERDICT, HitVerdict, PoolKeys, hit_verdict
from gateway.pools.traffic.past_moments import PastMoments

WINDOW_S = 300.0
"""Age limit of samples in seconds. Without requests for cached prompts, an engine is trusted again after this time."""
MAX_SAMPLES = 64
"""Limit per tenant, separately for seen and reported samples."""
MAX_SOURCES = 32
REPORTED_SHARE = 0.05
JUDGED_EVERY_S = 2.0
GAP_S = 10.0
"""Events missed up to this many seconds before a decision can explain its wrong prediction."""


class IndexTrust:
    """One engine's samples and their verdict. Mutable: all of it, changed on the loop's thread."""

    def __init__(self) -> None:
        self.verdict: HitVerdict = NO_VERDICT
        self._samples: dict[tuple[bool, str], deque[HitSample]] = {}
        """Separate by tenant, so that no tenant displaces another's samples, and by whether the sample was reported or
        seen.
        """
        self._gaps = PastMoments()
        self._removals = PastMoments()
        self._counts = (0, 0)
        self._fresh = False
        self._judged_s = float("-inf")

    def note_events(self, counts: Mapping[str, int], now: float) -> None:
        """Read the event ledger's counts, and record when events were missed or blocks removed."""
        counted = counts.get("gaps", 0) + counts.get("lost", 0), counts.get("BlockRemoved", 0)
        before, self._counts = self._counts, counted
        if counted[0] > before[0]:
            self._gaps.note(now)
        if counted[1] > before[1]:
            self._removals.note(now)

    def gap_near(self, decided_s: float, ended_s: float) -> bool:
        """Return whether events were missed between shortly before the decision and the request's end."""
        return self._gaps.any_between(decided_s - GAP_S, ended_s)

    def removed_between(self, decided_s: float, ended_s: float) -> bool:
        """Return whether the engine reported removed blocks during the request."""
        return self._removals.any_between(decided_s, ended_s)

    def take(self, sample: HitSample) -> None:
        """Add one request's sample."""
        source = sample.reported, sample.tenant
        samples = self._samples.get(source)
        if samples is None:
            if len(self._samples) >= MAX_SOURCES:
                self._samples.pop(min(list(self._samples), key=self._newest_s, default=source), None)
            samples = self._samples[source] = deque(maxlen=MAX_SAMPLES)
        samples.append(sample)
        self._fresh = True

    def recent(self) -> list[HitSample]:
        """Return the newest samples, oldest first. Can be called in any thread."""
        return self._all()[-MAX_SAMPLES:]

    def _newest_s(self, source: tuple[bool, str]) -> float:
        return max((sample.at_s for sample in list(self._samples.get(source, ()))), default=float("-inf"))

    def _all(self) -> list[HitSample]:
        # list() copies within one step of the interpreter; pages read this in other threads.
        held = [sample for samples in list(self._samples.values()) for sample in list(samples)]
        return sorted(held, key=lambda item: item.at_s)

    def judge(self, keys: PoolKeys, now: float) -> bool:
        """Update the verdict; return whether its grade or cause changed."""
        for samples in list(self._samples.values()):
            while samples and now - samples[0].at_s > WINDOW_S:
                samples.popleft()
                self._fresh = True
        if not self._fresh or now - self._judged_s < JUDGED_EVERY_S:
            return False
        self._fresh, self._judged_s = False, now
        before, verdict = self.verdict, hit_verdict(self._all(), keys, self.verdict.grade)
        changed = (before.grade, before.cause) != (verdict.grade, verdict.cause)
        # Small changes of the share would send every viewer new words twice a second.
        if changed or abs((verdict.share or 0.0) - (before.share or 0.0)) > REPORTED_SHARE:
            self.verdict = verdict
        return changed

    def forget(self) -> None:
        """Reset everything, for example after the engine's process or the keys changed."""
        self._samples.clear()
        self.verdict = NO_VERDICT
        self._counts = (0, 0)
        self._fresh = False
