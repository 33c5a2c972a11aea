"""Rate limits and trust of each source of advisories, from its latest outcomes."""

from __future__ import annotations

from collections import OrderedDict

from planning.kv_moves.planner_trust import PlannerTrust

PER_S, BURST = 50.0, 100.0
"""Advisories of one API key: per second, and in a burst."""
TOKEN_SHARE = 0.1
"""Share of its API key's advisories that one token can send, so that a faulty page cannot use up the limit."""
MAX_SOURCES = MAX_TOKENS = 10_000
_RANKS = 10


class _Bucket:
    __slots__ = ("at_s", "left")

    def __init__(self, burst: float, now: float) -> None:
        self.left, self.at_s = burst, now

    def take(self, per_s: float, burst: float, now: float) -> float:
        """Take one token; return the seconds until a retry, 0 if it was taken."""
        self.left = min(burst, self.left + max(0.0, now - self.at_s) * per_s)
        self.at_s = max(self.at_s, now)
        if self.left < 1.0:
            return (1.0 - self.left) / per_s
        self.left -= 1.0
        return 0.0


class _Source(_Bucket):
    __slots__ = ("trust",)

    def __init__(self, now: float) -> None:
        super().__init__(BURST, now)
        self.trust = PlannerTrust()


class SourceLimits:
    """Rate limits and trust by source. Mutable: `_sources` by tenant and API key, most recently used last."""

    def __init__(self) -> None:
        self._sources: OrderedDict[tuple[str, str], _Source] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sources)

    def take(self, tenant_id: str, source: str, now: float) -> float:
        """Spend one advisory of the source's limit; return the seconds until a retry, 0 if accepted."""
        return self._of(tenant_id, source, now).take(PER_S, BURST, now)

    def may_move(self, tenant_id: str, source: str, now: float) -> bool:
        """Return whether the source may move blocks now. A source with mostly spurious advisories rarely may."""
        return self._of(tenant_id, source, now).trust.may_ask(now)

    def judged(self, tenant_id: str, source: str, useful: bool, now: float) -> None:
        """Record the outcome of an advisory."""
        self._of(tenant_id, source, now).trust.judged(useful)

    def rank(self, tenant_id: str, source: str, priority: int, now: float) -> int:
        """Return the rank of the source's moves: the more spurious its advisories, the later."""
        share = self._of(tenant_id, source, now).trust.useful_share
        return _RANKS * round(_RANKS * (1.0 - share)) + priority

    def trust(self, tenant_id: str, source: str, now: float) -> PlannerTrust:
        """Return the trust in the source."""
        return self._of(tenant_id, source, now).trust

    def _of(self, tenant_id: str, source: str, now: float) -> _Source:
        name = tenant_id, source
        known = self._sources.get(name)
        if known is None:
            known = self._sources[name] = _Source(now)
            if len(self._sources) > MAX_SOURCES:
                self._sources.popitem(last=False)
        else:
            self._sources.move_to_end(name)
        return known


class TokenLimits:
    """Rate limits by token. Mutable: `_tokens`, most recently used last."""

    def __init__(self) -> None:
        self._tokens: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tokens)

    def take(self, token: str, per_minute: int | None, now: float) -> float:
        """Spend one call of a token whose API key may send `per_minute` (None: PER_S); return as SourceLimits.take."""
        most = PER_S if per_minute is None else min(PER_S, per_minute / 60.0)
        burst = max(1.0, TOKEN_SHARE * (BURST if per_minute is None else min(BURST, per_minute)))
        bucket = self._tokens.get(token)
        if bucket is None:
            bucket = self._tokens[token] = _Bucket(burst, now)
            if len(self._tokens) > MAX_TOKENS:
                self._tokens.popitem(last=False)
        else:
            self._tokens.move_to_end(token)
        return bucket.take(TOKEN_SHARE * most, burst, now)
