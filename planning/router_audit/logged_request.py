"""One request in the log of another router, and all that the log's lines state about it together. No prompts."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

KEPT_PROBLEMS = 20
"""Unusable lines that a report lists."""
BLOCK_TOKENS = 512
"""Prompt tokens per block name, as in Mooncake's traces."""

_MOST = {
    "prompt_tokens": 10_000_000, "output_tokens": 1_000_000, "cached_tokens": 10_000_000, "ttft_s": 86_400,
    "total_s": 7 * 86_400,
}  # fmt: skip


class UnusableLineError(ValueError):
    """A line from which no request can be read. The message states why and what to do."""


class OtherLineError(ValueError):
    """A line that belongs to no audited request, such as a health check. The message states what it is."""


class LoggedRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one line states about one request. None and empty values are not stated. Times in seconds."""

    request_id: str = ""
    """Lines with the same id are about the same request."""
    arrived_s: float | None = None
    """Unix time, or the time since any other fixed moment."""
    engine: str = ""
    """Name, id, or address of the engine that received it."""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    ttft_s: float | None = None
    total_s: float | None = None
    blocks: tuple[int, ...] = ()
    """One name per BLOCK_TOKENS tokens, each for the whole prefix up to there."""
    block_source: str = ""
    """hashes (in the log), tokens (ids in the log), or prompt (text in the log, tokenized here)."""
    session: str = ""
    outcome: str = ""
    """completed, failed, cancelled, or client_error."""
    estimated: bool = False
    """Whether `prompt_tokens` is an estimate from bytes."""

    def check(self) -> None:
        """Raise UnusableLineError if a figure is larger than any real one, which no simulation could end with."""
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value is not None and value > most:
                raise UnusableLineError(f"{name} is {value:.3g}, more than {most:,}; check its unit")

    def merged(self, other: LoggedRequest) -> LoggedRequest:
        """Return this request with what only the other line states. A counted length replaces an estimated one."""
        stated = {name: getattr(self, name) or getattr(other, name) for name in ("engine", "session", "outcome")}
        for name in ("arrived_s", "output_tokens", "cached_tokens", "ttft_s", "total_s"):
            own = getattr(self, name)
            stated[name] = getattr(other, name) if own is None else own
        counted = self if self.blocks or not other.blocks else other
        sized = other if self.prompt_tokens is None or (self.estimated and other.prompt_tokens is not None) else self
        return LoggedRequest(
            request_id=self.request_id,
            prompt_tokens=sized.prompt_tokens,
            estimated=sized.estimated,
            blocks=counted.blocks,
            block_source=counted.block_source,
            **stated,
        )


@dataclass(slots=True)
class RequestLog:
    """All lines of all files together. Mutable while it is read."""

    files: list[str] = field(default_factory=list)
    lines: int = 0
    unusable: int = 0
    problems: list[tuple[str, str]] = field(default_factory=list)
    """File with line number, and reason, of the first unusable lines, at most KEPT_PROBLEMS."""
    others: dict[str, int] = field(default_factory=dict)
    """What lines of no audited request are → number of lines."""
    by_id: dict[str, LoggedRequest] = field(default_factory=dict)
    """Request id → request, in the order of their first lines."""

    def add(self, where: str, stated: LoggedRequest) -> None:
        """Add what a line states. `where` identifies a request without an id."""
        name = stated.request_id or where
        known = self.by_id.get(name)
        self.by_id[name] = stated if known is None else known.merged(stated)

    def reject(self, where: str, reason: str) -> None:
        """Count a line that cannot be read, and keep its reason if it is among the first."""
        self.unusable += 1
        if len(self.problems) < KEPT_PROBLEMS:
            self.problems.append((where, reason))

    def skip(self, what: str) -> None:
        """Count a line that belongs to no audited request."""
        self.others[what] = self.others.get(what, 0) + 1

    def requests(self) -> list[LoggedRequest]:
        """Return the requests that reached an engine, or could have, in order of arrival.

        Requests without an arrival time, and those that clients caused to fail, are counted among other lines.
        """
        usable = []
        for name, request in self.by_id.items():
            if request.arrived_s is None or request.outcome == "client_error":
                self.skip("request without a time, or rejected because of its content")
            else:
                usable.append(msgspec.structs.replace(request, request_id=name))
        # Lines with equal times keep the order of the log.
        return sorted(usable, key=lambda request: request.arrived_s or 0.0)
