"""Generate the four workloads: trees of thoughts, and two kinds of chat. They model the study, not its data sets.

A client's n-th program depends only on the seed, the client, and n, so that all policies serve the same requests.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate, count, cycle
from random import Random

import msgspec

from simulator.regions.programs import Conversation, Program, Tree
from simulator.regions.region_request import EMPTY, Prompt, PromptSegment


class Lengths(msgspec.Struct, frozen=True):
    """Log-normal lengths in tokens, clipped to a range."""

    median: float
    spread: float
    low: int
    high: int

    def draw(self, rng: Random) -> int:
        """Return one length."""
        return round(min(max(rng.lognormvariate(math.log(self.median), self.spread), self.low), self.high))


class TreeShape(msgspec.Struct, frozen=True):
    """450 shared tokens of few-shot examples, a question, and 100 tokens of instruction at each step."""

    branches: int = 2
    levels: int = 4
    examples: int = 450
    instruction: int = 100
    answer: Lengths = Lengths(170, 0.9, 30, 512)


class ChatShape(msgspec.Struct, frozen=True):
    """Conversations of users with Zipf popularity. Some start with a prefix of their user, some with a global one."""

    words: Lengths
    answer: Lengths
    another_turn: float
    users: int = 400
    zipf: float = 0.8
    own_prefix_share: float = 0.15
    global_prefix_share: float = 0.1
    prefix: Lengths = Lengths(250, 0.5, 60, 800)


class WorkloadSpec(msgspec.Struct, frozen=True):
    """A workload's default number of clients and engines per region (us, eu, asia), and the programs of its clients."""

    clients: tuple[int, int, int]
    replicas: tuple[int, int, int]
    shapes: tuple[TreeShape | ChatShape, TreeShape | ChatShape, TreeShape | ChatShape]


_TREE, _WIDE_TREE = TreeShape(), TreeShape(branches=4)
_ARENA = ChatShape(Lengths(102, 1.0, 8, 1024), Lengths(240, 0.75, 16, 1024), 0.33)
_WILD = ChatShape(Lengths(210, 1.0, 8, 2048), Lengths(350, 0.8, 16, 1024), 0.4)

WORKLOADS = {
    "tot": WorkloadSpec((40, 20, 20), (4, 4, 4), (_TREE, _TREE, _TREE)),
    "mixed": WorkloadSpec((2, 20, 20), (4, 4, 4), (_WIDE_TREE, _TREE, _TREE)),
    "arena": WorkloadSpec((80, 80, 80), (3, 2, 3), (_ARENA, _ARENA, _ARENA)),
    "wild": WorkloadSpec((40, 30, 30), (2, 2, 2), (_WILD, _WILD, _WILD)),
}


class ProgramSource:
    """Creates programs. Mutable state: the counter that names segments, and the prefixes created so far."""

    def __init__(self, spec: WorkloadSpec, regions: tuple[str, ...], seed: int) -> None:
        self._seed = seed
        self._keys = count(1)
        self._shapes = dict(zip(regions, cycle(spec.shapes), strict=False))
        self._shared: dict[str, PromptSegment | None] = {}

    def program(self, region: str, client: int, number: int) -> Program:
        """Return a client's program with that number."""
        rng = Random(f"{self._seed} {region} {client} {number}")
        shape = self._shapes[region]
        if isinstance(shape, TreeShape):
            return self._tree(shape, region, rng)
        return self._conversation(shape, region, rng)

    def _segment(self, tokens: int) -> PromptSegment:
        return PromptSegment(next(self._keys), tokens)

    def _kept(self, name: str, make: Callable[[Random], int | None]) -> PromptSegment | None:
        """Return the segment of that name, which depends on the seed and the name alone; None if it has none."""
        if name not in self._shared:
            tokens = make(Random(f"{self._seed} {name}"))
            self._shared[name] = None if tokens is None else self._segment(tokens)
        return self._shared[name]

    def _tree(self, shape: TreeShape, region: str, rng: Random) -> Tree:
        examples = self._kept("examples", lambda _: shape.examples)
        root = _after(EMPTY, examples).then(self._segment(rng.randint(80, 240)))
        size = sum(shape.branches**level for level in range(shape.levels))
        nodes = [(self._segment(shape.instruction), self._segment(shape.answer.draw(rng))) for _ in range(size)]
        return Tree(region, rng.getrandbits(64), root, shape.branches, nodes)

    def _conversation(self, shape: ChatShape, region: str, rng: Random) -> Conversation:
        user = _zipf(rng, shape.users, shape.zipf)
        start = _after(EMPTY, self._prefix(shape, f"{region} user {user}", rng))
        turns: list[tuple[PromptSegment, PromptSegment]] = []
        while not turns or rng.random() < shape.another_turn:
            turns.append((self._segment(shape.words.draw(rng)), self._segment(shape.answer.draw(rng))))
        return Conversation(region, Random(f"{region} user {user}").getrandbits(64), start, turns)

    def _prefix(self, shape: ChatShape, user: str, rng: Random) -> PromptSegment | None:
        if rng.random() < shape.global_prefix_share:
            return self._kept(f"global {rng.randrange(3)}", shape.prefix.draw)
        return self._kept(user, lambda own: shape.prefix.draw(own) if own.random() < shape.own_prefix_share else None)


def _after(prompt: Prompt, segment: PromptSegment | None) -> Prompt:
    return prompt if segment is None else prompt.then(segment)


_ZIPF_SUMS: dict[tuple[int, float], list[float]] = {}


def _zipf(rng: Random, count_: int, exponent: float) -> int:
    sums = _ZIPF_SUMS.setdefault(
        (count_, exponent), list(accumulate((rank + 1) ** -exponent for rank in range(count_)))
    )
    return bisect_left(sums, rng.random() * sums[-1])
