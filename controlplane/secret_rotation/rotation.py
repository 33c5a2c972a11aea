"""The state of a secret rotation, and what prevents its next step.

1. Install: every process accepts the new secret in addition to the old one, which it uses.
2. Use: every process uses the new one, and accepts the old one.
3. Finish: no process accepts the old one any longer.

Each step is a rolling restart. Processes that differ by one step accept each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from controlplane.platform.format import ago, clock_time, some_names, zone_name
from controlplane.secret_rotation.holders import Holder, Holders, newest
from gateway.requests.advisories.advisory_token import MAX_LIFETIME_S
from kvstore.keys.keyring import FLEET, KV, SESSIONS

LATELY_S = 600.0
"""Time for which a use of the other secret may recur. Links, frames, and connections are renewed more often."""
_NAMED = 5
KINDS = {FLEET: "HEADWAY_FLEET_SECRET", SESSIONS: "SECRET_KEY", KV: "HEADWAY_KV_SECRET"}
"""Kinds of secrets, with their environment variables."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """One kind of secret across all processes."""

    kind: str
    used: str
    """Fingerprint of the secret that this process uses or, without one, most others; empty: unknown."""
    also: str
    """Fingerprint of the additionally accepted secret; empty: no rotation in progress."""
    holders: tuple[Holder, ...]
    not_installed: tuple[str, ...]
    """Reasons that prevent using the other secret."""
    still_needed: tuple[str, ...]
    """Reasons why the other secret must still be accepted."""

    @property
    def variable(self) -> str:
        """The environment variable of the secret."""
        return KINDS[self.kind]


def rotations(holders: Holders, own: Iterable[Holder], now: float) -> list[Rotation]:
    """Return all kinds in use. `own` contains this process's secrets, the reference for the others."""
    by_kind = {item.secrets.kind: item for item in own}
    kinds = []
    for kind in KINDS:
        known = holders.of(kind)
        mine = by_kind.get(kind)
        used, also = (mine.secrets.used, mine.secrets.also) if mine is not None else _of_most(known)
        if used:
            kinds.append(_rotation(kind, used, also, known, holders.silent, now))
    return kinds


def _of_most(known: list[Holder]) -> tuple[str, str]:
    pairs = Counter((item.secrets.used, item.secrets.also) for item in known)
    return max(pairs, key=lambda pair: (pairs[pair], pair)) if pairs else ("", "")


def _rotation(kind: str, used: str, also: str, known: list[Holder], silent: tuple[str, ...], now: float) -> Rotation:
    not_installed, still_needed = list(silent), list(silent)
    lacking = [str(item) for item in known if also and not item.accepts(also)]
    if lacking:
        not_installed.append(f"Do not accept {also} yet: {some_names(lacking, _NAMED)}.")
    using = [str(item) for item in known if item.secrets.used != used]
    if using:
        still_needed.append(f"Do not use {used} yet: {some_names(using, _NAMED)}.")
    for item in known:
        # In a process that uses the other secret, the roles of the two are exchanged.
        if item.secrets.used == used:
            still_needed += _accepted_lately(item, now)
    still_needed += _tokens(kind, also, known, now)
    return Rotation(kind, used, also, tuple(known), tuple(not_installed), tuple(still_needed))


def _accepted_lately(holder: Holder, now: float) -> list[str]:
    return [
        f"{str(holder)[:1].upper()}{str(holder)[1:]} accepted {use.purpose} of {use.who or 'others'} by "
        f"{holder.secrets.also} {ago(now - use.newest_at)}."
        for use in newest(holder.secrets.uses)
        if now - use.newest_at < LATELY_S
    ]


def _tokens(kind: str, also: str, known: list[Holder], now: float) -> list[str]:
    """Return a sentence about advisory tokens in browsers that a gateway may have signed with the old secret."""
    starts = [item.started_at for item in known if item.role == "gateway" and item.started_at is not None]
    if kind != FLEET or not also or not starts or now >= (until := max(starts) + MAX_LIFETIME_S):
        return []
    return [f"Advisory tokens that gateways signed with {also} are valid until {clock_time(until)} {zone_name()}."]
