"""The agent beside nginx: updates upstreams.conf, reports the requests that nginx logs, and serves counters."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from deploy.metrics_server import lines, serving
from deploy.nginx.feedback import Report, read
from deploy.nginx.upstreams import UpstreamPool, render, skipped

MAX_REPORTS = 10_000
"""Limit of reports queued for Headway. Beyond it, the newest reports are dropped and counted."""
SENDERS = 8
POLL_S = 2.0
_OUTCOMES = ("decided", "rejected", "unavailable")
_REASONS = ("down", "late", "error", "observes")
_COUNTED = frozenset((*_OUTCOMES, *(f"failed_open_{reason}" for reason in _REASONS)))

log = logging.getLogger("headway.nginx")


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Addresses of the gateway and the REST API, the file paths, and the command that reloads nginx."""

    url: str
    management_url: str
    api_key: str
    upstreams: Path
    feedback: Path
    reload: tuple[str, ...]
    metrics_port: int = 0


class Agent:
    """The agent beside nginx. Mutable: the counters and the queued reports."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self.counts: Counter[tuple[str, str]] = Counter()
        self._reports: asyncio.Queue[Report] = asyncio.Queue(MAX_REPORTS)

    async def run(self) -> None:
        """Run the agent until it is cancelled."""
        settings = self._settings
        headers = {"Authorization": f"Bearer {settings.api_key}"}
        timeout = aiohttp.ClientTimeout(total=5.0)
        # A socket file of an earlier run would make bind fail.
        settings.feedback.unlink(missing_ok=True)
        loop = asyncio.get_running_loop()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sock.setblocking(False)
        sock.bind(str(settings.feedback))
        settings.feedback.chmod(0o666)  # nginx's workers run as another user
        loop.add_reader(sock, self._receive, sock)
        try:
            async with (
                aiohttp.ClientSession(headers=headers, timeout=timeout) as session,
                serving(settings.metrics_port, self.metrics),
                asyncio.TaskGroup() as group,
            ):
                group.create_task(self._keep_upstreams(session))
                for _ in range(SENDERS):
                    group.create_task(self._send(session))
        finally:
            loop.remove_reader(sock)
            sock.close()

    def metrics(self) -> str:
        """Return the counters as Prometheus text."""

        def of(name: str, prefix: str, *values: str) -> dict[str, int]:
            return {value: self.counts[name, prefix + value] for value in values}

        return (
            lines("headway_nginx_requests_total", "outcome", of("requests", "", *_OUTCOMES))
            + lines("headway_nginx_fail_open_total", "reason", of("requests", "failed_open_", *_REASONS))
            + lines("headway_nginx_reports_total", "result", of("reports", "", "sent", "lost"))
            + lines("headway_nginx_reloads_total", "result", of("reloads", "", "done", "failed"))
        )

    def _receive(self, sock: socket.socket) -> None:
        # A bounded batch, so that a flood of datagrams does not keep the loop from its other work.
        for _ in range(256):
            try:
                outcome, report = read(sock.recv(65_536))
            except BlockingIOError:
                return
            if outcome in _COUNTED:
                self.counts["requests", outcome] += 1
            if report is not None:
                try:
                    self._reports.put_nowait(report)
                except asyncio.QueueFull:
                    self.counts["reports", "lost"] += 1

    async def _send(self, session: aiohttp.ClientSession) -> None:
        while True:
            report = await self._reports.get()
            where = f"{self._settings.url}/api/v1/requests/{report.decision_id}/{report.verb}"
            try:
                async with session.post(where, json=report.usage) as answer:
                    sent = answer.status == 200
            except (aiohttp.ClientError, TimeoutError):
                sent = False
            self.counts["reports", "sent" if sent else "lost"] += 1

    async def _keep_upstreams(self, session: aiohttp.ClientSession) -> None:
        logged: list[str] = []
        while True:
            try:
                pools = await fleet(session, self._settings.management_url)
                if (left := skipped(pools)) != logged:
                    log.warning("engines without a plain http address: %s", ", ".join(left) or "none")
                    logged = left
                await self._write(render(pools))
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                # nginx keeps its current upstreams, so that it works without Headway.
                log.warning("the fleet cannot be read: %s", str(error) or type(error).__name__)
            await asyncio.sleep(POLL_S)

    async def _write(self, text: str) -> None:
        """Replace the file and reload nginx if the fleet changed. Restore the old file if nginx rejects the new one."""
        path = self._settings.upstreams
        before = path.read_text() if path.exists() else None
        if text == before:
            return
        _replace(path, text)
        process = await asyncio.create_subprocess_exec(*self._settings.reload)
        done = await process.wait() == 0
        self.counts["reloads", "done" if done else "failed"] += 1
        if not done and before is not None:
            _replace(path, before)


async def fleet(session: aiohttp.ClientSession, url: str) -> list[UpstreamPool]:
    """Return the pools and their serving engines that the API key's role can see."""
    engines: dict[str, dict[str, str]] = {}
    async for row in _rows(session, f"{url}/api/v1/engines?desired_state=ready&limit=500"):
        engines.setdefault(row["pool"], {})[row["engine_id"]] = row["connect_url"]
    return [
        UpstreamPool(row["slug"], row["served_model"], row["isolated"], engines.get(row["slug"], {}))
        async for row in _rows(session, f"{url}/api/v1/pools?limit=500")
    ]


async def _rows(session: aiohttp.ClientSession, page: str | None) -> AsyncIterator[Any]:
    while page:
        async with session.get(page, raise_for_status=True) as answer:
            rows = await answer.json()
        for item in rows["results"]:
            yield item
        page = rows["next"]


def _replace(path: Path, text: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    # nginx may be reloaded at any time, and must not read half a file.
    fresh.replace(path)
