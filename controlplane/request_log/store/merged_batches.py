"""Names of batches whose segments were merged, as spans of numbers per gateway process."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.request_log.models.segment import MergedBatches

Span = tuple[int, int]

MAX_SPANS = 1000
"""Maximum number of spans per gateway process. Beyond it, the oldest gaps count as stored."""
KEPT_MS = 7 * 86_400_000
"""Time for which names are kept after a process's last merge. The bus delivers no entry later than this."""


def merged_among(names: Iterable[str]) -> set[str]:
    """Return the batches among these that were stored and later merged."""
    wanted = {name: _parts(name) for name in names}
    known = MergedBatches.objects.in_bulk({source for source, _ in wanted.values()})
    return {
        name
        for name, (source, number) in wanted.items()
        if source in known and any(first <= number <= last for first, last in known[source].numbers)
    }


def note_merged(names: Iterable[str], now_ms: int) -> None:
    """Record these batches as merged, in the transaction that merges them."""
    numbers: dict[str, list[int]] = {}
    for source, number in map(_parts, names):
        numbers.setdefault(source, []).append(number)
    for source, more in sorted(numbers.items()):
        known, _ = MergedBatches.objects.select_for_update().get_or_create(source=source, defaults={"at_ms": now_ms})
        spans = joined_spans([*map(tuple, known.numbers), *((number, number) for number in more)])
        MergedBatches.objects.filter(pk=source).update(numbers=spans, at_ms=now_ms)


def forget_merged_batches(now_ms: int) -> int:
    """Delete entries last changed longer than KEPT_MS ago. Return the number of gateway processes."""
    return MergedBatches.objects.filter(at_ms__lt=now_ms - KEPT_MS).delete()[0]


def joined_spans(spans: Iterable[Span]) -> list[Span]:
    """Return the numbers as ascending spans, MAX_SPANS at most."""
    joined: list[Span] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    over = len(joined) - MAX_SPANS
    return joined if over <= 0 else [(joined[0][0], joined[over][1]), *joined[over + 1 :]]


def _parts(name: str) -> tuple[str, int]:
    """Split a batch's name into gateway process and number."""
    source, _, number = name.rpartition("-")
    return (source, int(number)) if source and number.isascii() and number.isdecimal() else (name, 0)
