"""Running decodes per engine with their start, from which admission predicts the decode load of a later moment."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter

_FIRST_DECODE_S = 10.0
"""What a decode is expected to take before any has ended."""
_FIRST_CONTEXT_TOKENS = 4096.0
_MEMORY = 0.98
"""Weight that older observations keep with each new one."""


class DecodeBook:
    """Requests between their first token and their end, by target, in the order of their first tokens.

    Mutable state: `_starts` (per target, sorted (moment, request id), once for each answer), `_where` (request id →
    target, moment, answers), and the running means of how long a decode takes and of the tokens that it attends to.
    """

    def __init__(self) -> None:
        self._starts: dict[int, list[tuple[float, str]]] = {}
        self._where: dict[str, tuple[int, float, int]] = {}
        self._decode_s: float | None = None
        self._context_tokens: float | None = None

    def __len__(self) -> int:
        return len(self._where)

    @property
    def decode_s(self) -> float:
        """Mean seconds from first token to end, of late."""
        return _FIRST_DECODE_S if self._decode_s is None else self._decode_s

    @property
    def context_tokens(self) -> float:
        """Mean prompt tokens of a request that decodes, of late."""
        return _FIRST_CONTEXT_TOKENS if self._context_tokens is None else self._context_tokens

    def begin(self, request_id: str, target: int, context_tokens: int, now: float, sequences: int = 1) -> None:
        """Note a first token of so many answers; a request that decodes already is not counted again."""
        if request_id in self._where or not sequences:
            return
        starts = self._starts.setdefault(target, [])
        for _ in range(sequences):
            insort(starts, (now, request_id))
        self._where[request_id] = (target, now, sequences)
        self._context_tokens = _mean(self._context_tokens, float(context_tokens))

    def end(self, request_id: str, now: float, *, finished: bool) -> None:
        """Note the end of a decode; only a finished one says how long decodes take. Unknown ids are ignored."""
        entry = self._where.pop(request_id, None)
        if entry is None:
            return
        target, start, sequences = entry
        starts = self._starts[target]
        first = bisect_left(starts, (start, request_id))
        del starts[first : first + sequences]
        if not starts:
            del self._starts[target]
        if finished:
            self._decode_s = _mean(self._decode_s, max(0.0, now - start))

    def forget_target(self, target: int) -> None:
        """Drop what decodes on a target that is gone."""
        for _, request_id in self._starts.pop(target, []):
            self._where.pop(request_id, None)

    def decoding(self, target: int) -> int:
        """Return how many answers are decoded on the target."""
        return len(self._starts.get(target, ()))

    def decoding_after(self, target: int, moment: float) -> int:
        """Return how many of them began to decode after this moment."""
        starts = self._starts.get(target)
        return len(starts) - bisect_right(starts, (moment, "\U0010ffff")) if starts else 0

    def check(self) -> None:
        """Raise AssertionError unless all tables agree."""
        standing = Counter((request_id, target, at) for target, row in self._starts.items() for at, request_id in row)
        if standing != {(name, target, at): count for name, (target, at, count) in self._where.items()}:
            raise AssertionError("starts and places differ")
        for target, row in self._starts.items():
            if row != sorted(row) or not row:
                raise AssertionError(f"target {target}: starts are out of order")


def _mean(before: float | None, value: float) -> float:
    return value if before is None else _MEMORY * before + (1 - _MEMORY) * value
