"""Share of prefixes that change engines when a pool grows or shrinks (DualMap §3.4, A.2.3)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from xxhash import xxh3_64_intdigest

from routing.rings.hash_ring import CandidateRings

SAMPLED_KEYS = 4096


class Remap(msgspec.Struct, frozen=True):
    """Shares, 0..1, of the mappings from a prefix to one of its candidates."""

    share: float
    """Mappings that change to another engine."""
    ideal: float
    """Minimum for any balanced mapping: the share of added or removed engines."""
    modulo: float
    """Share that moves if engines are chosen by key modulo number of engines."""


def remap_of(before: Sequence[str], after: Sequence[str], *, rings: int = 2, virtual_nodes: int = 100) -> Remap:
    """Return the share that moves between two sets of engine ids, over a fixed sample of keys.

    All figures are 0 if either set is empty, because no key can move.
    """
    old, new = sorted(set(before)), sorted(set(after))
    if not old or not new:
        return Remap(0.0, 0.0, 0.0)
    keys = [xxh3_64_intdigest(number.to_bytes(8, "little")) for number in range(SAMPLED_KEYS)]
    old_rings = CandidateRings(old, rings=rings, virtual_nodes=virtual_nodes)
    new_rings = CandidateRings(new, rings=rings, virtual_nodes=virtual_nodes)
    moved = mapped = moved_modulo = 0
    for key in keys:
        candidates = {old[at] for at in old_rings.candidates(key)}
        kept = {new[at] for at in new_rings.candidates(key)}
        mapped += len(candidates)
        moved += len(candidates - kept)
        # For comparison: the plainest mapping.
        moved_modulo += old[key % len(old)] != new[key % len(new)]
    stay = set(old) & set(new)
    ideal = 1.0 - len(stay) / max(len(old), len(new))
    return Remap(moved / mapped, ideal, moved_modulo / len(keys))
