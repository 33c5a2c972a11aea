"""The engines and requests of a log as a simulation needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low

from controlplane.router_audit.log_files import UnreadableLogError
from controlplane.router_audit.readers.line_fields import session_blocks
from planning.router_audit.log_gaps import ASSUMED_OUTPUT_TOKENS, ASSUMED_PROMPT_TOKENS
from planning.router_audit.logged_request import LoggedRequest
from routing.values.counted import count
from simulator.runs.simulation_run import engine_names
from simulator.workloads.arrivals import request_name
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.trace import TraceRow

MAX_ENGINES = 512
MAX_SPAN_S = 31 * 86_400
"""Longest log. A line with a wrong year would make a simulation of years."""
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class AuditedFleet:
    """A log's requests in order of arrival, and its engines. Nothing is changed once it is built."""

    requests: Sequence[LoggedRequest]
    workload: Workload
    """The same requests as a trace."""
    names: dict[str, str]
    """Engine id of the simulation → name in the log."""
    chosen: dict[str, str]
    """Request id of the simulation → id of the logged engine; requests without an engine are absent."""

    def first(self, requests: int) -> AuditedFleet:
        """Return the fleet with only the first requests."""
        if requests >= len(self.requests):
            return self
        chosen = {name: self.chosen[name] for name in map(request_name, range(requests)) if name in self.chosen}
        return AuditedFleet(self.requests[:requests], Workload(self.workload.rows[:requests]), self.names, chosen)


def audited_fleet(requests: Sequence[LoggedRequest], engines: str) -> AuditedFleet:
    """Return the fleet of a log. `engines` is a number, or a file with one engine a line (see `listed_engines`).

    Raises UnreadableLogError if the log names other engines or is too long.
    """
    first, last = requests[0], requests[-1]
    if (last.arrived_s or 0.0) - (first.arrived_s or 0.0) > MAX_SPAN_S:
        raise UnreadableLogError(
            f"more than 31 days are between {first.request_id} and {last.request_id}; check times, or split the log"
        )
    logged = sorted({request.engine for request in requests if request.engine})
    ids = _numbered(logged, int(engines)) if engines.isascii() and engines.isdecimal() else listed_engines(engines)
    unknown = [name for name in logged if name not in ids]
    if unknown:
        raise UnreadableLogError(
            f"the log names engines that --engines does not list: {', '.join(unknown[:_SHOWN])}; add them as further "
            "names on the line of their engine, or as engines of their own"
        )
    names: dict[str, str] = {}
    for name, engine_id in ids.items():
        names.setdefault(engine_id, name)
    chosen = {request_name(index): ids[request.engine] for index, request in enumerate(requests) if request.engine}
    return AuditedFleet(requests, Workload(_rows(requests)), names, chosen)


def listed_engines(path: str) -> dict[str, str]:
    """Return each name → engine id from a file: one engine a line, its further names in logs after its name.

    Raises UnreadableLogError.
    """
    try:
        lines = [words for line in Path(path).read_text("utf-8").splitlines() if (words := line.split())]
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableLogError(f"--engines: {path} is no number and no readable file: {error}") from error
    if not 0 < len(lines) <= MAX_ENGINES:
        raise UnreadableLogError(f"--engines: {path} lists {len(lines)} engines; list 1 to {MAX_ENGINES}, one a line")
    return {
        name.lower(): engine_id
        for engine_id, words in zip(engine_names(len(lines)), lines, strict=True)
        for name in words
    }


def _numbered(logged: Sequence[str], engines: int) -> dict[str, str]:
    """Return each logged name → engine id, with names of our own for engines that the log never names."""
    if not 0 < engines <= MAX_ENGINES:
        raise UnreadableLogError(f"--engines: {engines} is not between 1 and {MAX_ENGINES}")
    if len(logged) > engines:
        raise UnreadableLogError(
            f"--engines {engines}, but the log names {count(len(logged), 'engine')}: {', '.join(logged[:_SHOWN])}; "
            "raise the number, or list engines that have several names in a file"
        )
    unnamed = [f"unnamed-{number}" for number in range(1, engines - len(logged) + 1)]
    return dict(zip([*logged, *unnamed], engine_names(engines), strict=True))


def _rows(requests: Sequence[LoggedRequest]) -> list[TraceRow]:
    prompts = [request.prompt_tokens for request in requests if request.prompt_tokens]
    outputs = [request.output_tokens for request in requests if request.output_tokens]
    prompt_tokens = median_low(prompts) if prompts else ASSUMED_PROMPT_TOKENS
    output_tokens = median_low(outputs) if outputs else ASSUMED_OUTPUT_TOKENS
    start_s = requests[0].arrived_s or 0.0
    return [_row(request, start_s, prompt_tokens, output_tokens) for request in requests]


def _row(request: LoggedRequest, start_s: float, prompt_tokens: int, output_tokens: int) -> TraceRow:
    tokens = request.prompt_tokens or prompt_tokens
    blocks = request.blocks or (session_blocks(request.session, tokens) if request.session else ())
    return TraceRow(
        timestamp=((request.arrived_s or 0.0) - start_s) * 1000,
        input_length=tokens,
        output_length=output_tokens if request.output_tokens is None else request.output_tokens,
        hash_ids=blocks,
        session_id=request.session or None,
    )
