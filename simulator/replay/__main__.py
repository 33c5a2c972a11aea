"""`python -m simulator.replay`: replays a trace against a real OpenAI-compatible server."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from simulator.parent_death import die_with_parent
from simulator.replay.host_pace import LATE_S, HostPace
from simulator.replay.replay_options import GENERATED, ReplayOptions, add_arguments, options_from, row_limit
from simulator.replay.replay_progress import ReplayProgress, Silent, progress_for
from simulator.replay.replay_request import request_body, send_row
from simulator.replay.replay_summary import ReplayOutcome, ReplaySummary, SummaryCounter, render_summary
from simulator.workloads.conversation_like import generate
from simulator.workloads.trace import TraceError, TraceRow, read_trace

__all__ = ["ReplayOptions", "ReplaySummary", "add_arguments", "main", "replay", "run"]

_POLL_S = 0.5


class TargetUnreachableError(RuntimeError):
    """The target did not become available in time."""


async def replay(
    rows: Sequence[TraceRow],
    options: ReplayOptions,
    *,
    progress: ReplayProgress | None = None,
    stop: asyncio.Event | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> ReplaySummary:
    """Send every row when it is due and return the summary; raise TargetUnreachableError.

    Rows must be ordered by timestamp. `stop` ends the replay early: requests in flight are cancelled and not counted.
    `say` receives a line while the target is not available yet.
    """
    counter = SummaryCounter()
    # By default aiohttp opens no more than 100 connections.
    connector = aiohttp.TCPConnector(limit=options.max_in_flight)
    timeout = aiohttp.ClientTimeout(total=options.timeout_s)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=_headers(options)) as session:
        await _wait_for_target(session, options, say)
        started = time.monotonic()
        run = _Run(session, options, counter, progress or Silent())
        run.pace, pacing = await _pace(session, options)
        sending = asyncio.ensure_future(run.send_all(rows))
        stopping = asyncio.ensure_future((stop or asyncio.Event()).wait())
        try:
            await asyncio.wait((sending, stopping), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                # Raises what ended it.
                await sending
        finally:
            await _cancel(sending, stopping, *pacing, *run.tasks)
    return counter.summary(time.monotonic() - started)


class _Run:
    """One replay in progress. Mutable state: `tasks` (requests in flight) and the counter."""

    def __init__(
        self, session: aiohttp.ClientSession, options: ReplayOptions, counter: SummaryCounter, progress: ReplayProgress
    ) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self.pace: HostPace | None = None
        self._session = session
        self._options = options
        self._counter = counter
        self._progress = progress
        self._slots = asyncio.Semaphore(options.max_in_flight)

    async def send_all(self, rows: Sequence[TraceRow]) -> None:
        """Send the rows, repeatedly if the replay loops, and wait for the last response."""
        passes = itertools.count() if self._options.loop else range(1)
        turns = endless_turns(rows) if self._options.endless else [(row, 0) for row in rows]
        for number in passes:
            await self._send_pass(turns, number)
        if self.tasks:
            await asyncio.wait(self.tasks)

    async def _send_pass(self, turns: Sequence[tuple[TraceRow, int]], of_pass: int) -> None:
        due_s, row_s = time.monotonic(), 0.0
        schedule = _schedule([row for row, _ in turns], self._options)
        for number, ((at_s, row), (_, earlier)) in enumerate(zip(schedule, turns, strict=True)):
            edition = f"{of_pass - earlier}." if of_pass != earlier else ""
            due_s += (at_s - row_s) / (self.pace.share if self.pace else 1.0)
            row_s = at_s
            wait = due_s - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            # Before the send is timed, so that a replay which runs out of slots reports its lag.
            await self._slots.acquire()
            lag = time.monotonic() - due_s
            if self.pace and lag > LATE_S:
                # The next requests are late, too, instead of being sent all at once.
                due_s += lag
            self._counter.latest_send_s = max(self._counter.latest_send_s, lag)
            task = asyncio.create_task(self._send(row, number, edition))
            # The event loop itself keeps no task alive.
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _send(self, row: TraceRow, number: int, edition: str) -> None:
        try:
            body = request_body(row, number, self._options, edition)
            headers = _headers(self._options, row.session_id)
            outcome: ReplayOutcome = await send_row(self._session, body, self._options, headers)
        finally:
            self._slots.release()
        self._counter.add(outcome)
        self._progress.update(self._counter)


def endless_turns(rows: Sequence[TraceRow]) -> list[tuple[TraceRow, int]]:
    """Return the rows of a pass that can follow itself, each with 1 if its session began in the pass before.

    Of `rows`, which cover twice as long, sessions that begin in the second half are left out, and turns there are moved
    to the first half. So the share of first turns, which no cache has, does not rise at the begin of a pass.
    """
    first, span_ms = rows[0].timestamp, (rows[-1].timestamp - rows[0].timestamp) / 2
    begun: set[str | int | None] = set()
    turns = []
    for row in rows:
        earlier = int(row.timestamp - first > span_ms)
        if not earlier:
            begun.add(row.session_id)
        if row.session_id in begun:
            turns.append((msgspec.structs.replace(row, timestamp=row.timestamp - earlier * span_ms), earlier))
    return sorted(turns, key=lambda turn: turn[0].timestamp)


def main(argv: Sequence[str] | None = None, prog: str = "python -m simulator.replay") -> int:
    """Parse `argv`, run the replay, and print the summary; return the exit status."""
    return run(parser(prog).parse_args(argv))


def parser(prog: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog=prog, description="Replay a trace against an OpenAI-compatible server.")
    add_arguments(made)
    return made


def run(arguments: argparse.Namespace) -> int:
    """Run the replay with the parsed arguments (add_arguments) and print the summary; return 1 if no request
    succeeded.
    """
    if arguments.parent_pid is not None:
        die_with_parent(arguments.parent_pid)
    try:
        rows = _rows(arguments)
        summary = asyncio.run(_run_until_signal(rows, options_from(arguments)))
    except (TraceError, TargetUnreachableError) as error:
        sys.stderr.write(f"replay: {error}\n")
        return 1
    sys.stdout.write(render_summary(summary) + "\n")
    if arguments.json is not None:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(summary)) + b"\n")
    return 0 if summary.ok else 1


def _rows(arguments: argparse.Namespace) -> list[TraceRow]:
    limit = row_limit(arguments)
    if arguments.trace == GENERATED:
        passes = 2 if arguments.loop else 1
        return generate(passes * (limit or 1), arguments.seed)
    return read_trace(Path(arguments.trace), limit)


async def _run_until_signal(rows: Sequence[TraceRow], options: ReplayOptions) -> ReplaySummary:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    progress = progress_for(None if options.loop else len(rows))
    try:
        return await replay(rows, options, progress=progress, stop=stop, say=_say)
    finally:
        progress.close()


def _schedule(rows: Sequence[TraceRow], options: ReplayOptions) -> Iterator[tuple[float, TraceRow]]:
    """Yield (seconds after the start of the pass, row) for each row."""
    if not rows:
        return
    first = rows[0].timestamp
    span_s = (rows[-1].timestamp - first) / 1000
    scale = 1.0
    if options.qps is not None and span_s > 0:
        scale = len(rows) / options.qps / span_s
    for row in rows:
        yield (row.timestamp - first) / 1000 * scale / options.speed, row


def _headers(options: ReplayOptions, session: str | int | None = None) -> dict[str, str]:
    headers = {"Content-Type": "application/json"}
    if key := options.key_of(session):
        headers["Authorization"] = f"Bearer {key}"
    return headers


async def _wait_for_target(session: aiohttp.ClientSession, options: ReplayOptions, say: Callable[[str], None]) -> None:
    """Wait until /v1/models responds without a server error."""
    deadline = time.monotonic() + options.wait_s
    said = False
    while (state := await _probe(session, options.target)) != "up":
        if time.monotonic() >= deadline:
            raise TargetUnreachableError(
                f"{options.target} is not up after {options.wait_s:g} s ({state}); start it first or raise --wait"
            )
        if not said:
            say(f"waiting up to {options.wait_s:g} s for {options.target} ({state})")
            said = True
        await asyncio.sleep(_POLL_S)


async def _probe(session: aiohttp.ClientSession, target: str) -> str:
    try:
        async with session.get(f"{target}/v1/models", timeout=aiohttp.ClientTimeout(total=5)) as response:
            return "up" if response.status < 500 else f"HTTP {response.status}"
    except (aiohttp.ClientError, TimeoutError):
        return "no connection"


async def _pace(
    session: aiohttp.ClientSession, options: ReplayOptions
) -> tuple[HostPace | None, list[asyncio.Future[None]]]:
    """Return the pace and its task, once the target responds promptly; none if the trace sets the pace."""
    if options.pace_file is None or options.qps is None:
        return None, []

    async def delay_s() -> float:
        started = time.monotonic()
        up = await _probe(session, options.target) == "up"
        return max(0.0 if up else LATE_S, time.monotonic() - started)

    pace = HostPace(options.pace_file, options.qps)
    await pace.settle(delay_s)
    return pace, [asyncio.ensure_future(pace.run(delay_s))]


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _say(line: str) -> None:
    sys.stderr.write(f"replay: {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    raise SystemExit(main())
