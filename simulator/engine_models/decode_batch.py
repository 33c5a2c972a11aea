"""Sequences that decode together. Steps are counted lazily, so that many equal steps cost no more than one."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil, sqrt

from simulator.engine_models.engine_profile import EngineProfile


@dataclass(slots=True, eq=False)
class _Member:
    """A sequence of the batch: its context tokens and step when it joined, and the step at which it is due."""

    context_tokens: int
    joined: int
    order: int
    due: int = 0


class DecodeBatch:
    """A decoding batch. It computes the duration of its next steps, and when a member is due.

    Each step gives every member one token. A member is due when it finishes or its block is full. Steps between two
    events run as one *run*. Mutable state: `_members` in order of joining, `_done` (steps since the batch was created),
    `context` (tokens that all members attend to), `_run` and `_started` (steps and start of the current run), and
    `_heap` of (due step, order, name), which can contain outdated entries.
    """

    def __init__(self, profile: EngineProfile) -> None:
        self._profile = profile
        self._members: dict[str, _Member] = {}
        self._heap: list[tuple[int, int, str]] = []
        self._order = 0
        self._done = 0
        self._run = 1
        self._started = 0.0
        self.context = 0

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def names(self) -> list[str]:
        """Return the members in the order in which they joined."""
        return list(self._members)

    def join(self, name: str, context_tokens: int, due_in: int) -> None:
        """Add a sequence that attends to `context_tokens` in its next step and is due after `due_in` steps."""
        self._order += 1
        self._members[name] = _Member(context_tokens, self._done, self._order)
        self.context += context_tokens
        self.rearm(name, due_in)

    def rearm(self, name: str, due_in: int) -> None:
        """Make a member due in `due_in` steps; raise ValueError unless `due_in` is positive."""
        if due_in < 1:
            raise ValueError(f"{name} cannot be due in {due_in} steps")
        member = self._members[name]
        member.due = self._done + due_in
        # The previous entry stays, since a heap has no cheap removal; `_outdated` recognizes it.
        heappush(self._heap, (member.due, member.order, name))

    def made(self, name: str) -> int:
        """Return the number of tokens that a member has received since it joined."""
        return self._done - self._members[name].joined

    def leave(self, name: str) -> int:
        """Remove a member and return the number of tokens that it has received since it joined."""
        member = self._members.pop(name)
        made = self._done - member.joined
        self.context -= member.context_tokens + made
        return made

    def steps_until_due(self) -> int:
        """Return after how many steps the first member is due; raise IndexError if the batch is empty."""
        while self._outdated(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] - self._done

    def seconds(self, steps: int) -> float:
        """Return the duration of the next `steps` steps if the batch stays the same."""
        first = self._profile.step_s(len(self._members), self.context)
        growth = self._profile.step_per_context_token_s * len(self._members)
        # An arithmetic series: each step reads one more token per member than the one before.
        return steps * first + growth * (steps * (steps - 1) // 2)

    def steps_reaching(self, started_s: float, until_s: float) -> int:
        """Return the minimum number of steps (at least 1) from `started_s` that end at `until_s` or later."""
        first = self._profile.step_s(len(self._members), self.context)
        growth = self._profile.step_per_context_token_s * len(self._members)
        span = max(0.0, until_s - started_s)
        half = first - growth / 2
        # Root of growth/2·k² + half·k = span, in the form that does not cancel when the growth is tiny.
        root = 2 * span / (half + sqrt(half * half + 2 * growth * span)) if half > 0 else 1.0
        # Rounding may leave the root a step off to either side, which the loops correct.
        steps = max(1, ceil(root) - 1)
        while started_s + self.seconds(steps) < until_s:
            steps += 1
        while steps > 1 and started_s + self.seconds(steps - 1) >= until_s:
            steps -= 1
        return steps

    def start_run(self, at_s: float, arrival_s: float | None) -> float:
        """Start a run until the first member is due or the next arrival must be considered; return its end."""
        steps = self.steps_until_due()
        end = at_s + self.seconds(steps)
        if arrival_s is not None and arrival_s < end:
            steps = self.steps_reaching(at_s, arrival_s)
            end = at_s + self.seconds(steps)
        self._run, self._started = steps, at_s
        return end

    def start_step(self, *, decodes: bool = True) -> None:
        """Start a single step, however long it takes. It gives each member one token, or none."""
        self._run = 1 if decodes else 0

    @property
    def decodes(self) -> bool:
        """Whether the current run gives its members tokens."""
        return self._run > 0

    def cut_run(self, now: float, end: float) -> float:
        """Cut the current run, which ends at `end`, after the step in progress at `now`; return the new end."""
        if self._run <= 1 or now >= end:
            return end
        self._run = self.steps_reaching(self._started, now)
        return self._started + self.seconds(self._run)

    def settle_run(self, now: float, end: float) -> float:
        """Cut the run and count its finished steps. The step in progress at `now` continues until the returned end."""
        end = self.cut_run(now, end)
        if self._run > 1:
            self.step(self._run - 1)
            self._run = 1
        return end

    def finish_run(self) -> list[str]:
        """End the current run and return the due members in the order in which they joined."""
        return self.step(self._run)

    def step(self, steps: int) -> list[str]:
        """Give every member `steps` tokens and return the due members in the order in which they joined."""
        self._done += steps
        self.context += steps * len(self._members)
        due: list[tuple[int, str]] = []
        while self._heap and self._heap[0][0] <= self._done:
            entry = heappop(self._heap)
            if not self._outdated(entry):
                due.append((entry[1], entry[2]))
        return [name for _, name in sorted(due)]

    def check(self) -> None:
        """Raise AssertionError unless the context sum is right and every member has a due step."""
        expected = sum(member.context_tokens + self._done - member.joined for member in self._members.values())
        if self.context != expected:
            raise AssertionError(f"the context is {expected} tokens, not {self.context}")
        listed = set(self._heap)
        for name, entry in self._members.items():
            if entry.due <= self._done or (entry.due, entry.order, name) not in listed:
                raise AssertionError(f"{name} will never be due")

    def _outdated(self, entry: tuple[int, int, str]) -> bool:
        member = self._members.get(entry[2])
        return member is None or member.order != entry[1] or member.due != entry[0]
