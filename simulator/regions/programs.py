"""The program that a client runs: a conversation, or a tree of thoughts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from simulator.regions.region_request import Prompt, PromptSegment, RegionRequest


class Program(Protocol):
    """A client's requests; each one is created after the response to its predecessor."""

    pauses: bool
    """Whether the client also thinks between requests of the program."""

    def first(self) -> RegionRequest:
        """Return the program's first request."""

    def following(self, answered: RegionRequest) -> list[RegionRequest]:
        """Return the requests that follow a response. The program ends when none follow and none are in flight."""


class Conversation:
    """A chat: each prompt is the full history and the user's next message."""

    pauses = True

    def __init__(
        self, region: str, session_key: int, start: Prompt, turns: Sequence[tuple[PromptSegment, PromptSegment]]
    ) -> None:
        self._region, self._session_key, self._start, self._turns = region, session_key, start, turns

    def first(self) -> RegionRequest:
        """Return the first turn."""
        return self._turn(0, self._start)

    def following(self, answered: RegionRequest) -> list[RegionRequest]:
        """Return the next turn, if there is one."""
        turn = answered.position + 1
        return [self._turn(turn, answered.whole)] if turn < len(self._turns) else []

    def _turn(self, turn: int, history: Prompt) -> RegionRequest:
        words, answer = self._turns[turn]
        return RegionRequest(history.then(words), answer, self._session_key, self._region, turn)


class Tree:
    """A tree of thoughts: each response is continued by `branches` instructions at once, without waiting for its
    level.
    """

    pauses = False

    def __init__(
        self,
        region: str,
        session_key: int,
        root: Prompt,
        branches: int,
        nodes: Sequence[tuple[PromptSegment, PromptSegment]],
    ) -> None:
        """Each node is an instruction and its response, level by level. The root's instruction is not used."""
        self._region, self._session_key, self._root = region, session_key, root
        self._branches, self._nodes = branches, nodes

    def first(self) -> RegionRequest:
        """Return the root's request."""
        return RegionRequest(self._root, self._nodes[0][1], self._session_key, self._region)

    def following(self, answered: RegionRequest) -> list[RegionRequest]:
        """Return the requests of a node's children."""
        first = self._branches * answered.position + 1
        history = answered.whole
        return [
            RegionRequest(history.then(instruction), answer, self._session_key, self._region, first + child)
            for child, (instruction, answer) in enumerate(self._nodes[first : first + self._branches])
        ]
