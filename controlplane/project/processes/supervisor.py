"""Starts, restarts, and ends every child process of this program.

Start it from the main thread: Linux notifies a child of its parent's death when the *thread* that started it ends.
Children run in separate process groups, so Ctrl-C reaches only the supervisor, which then ends them in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from controlplane.project.processes.child_process import RUNNING, STARTING, STOPPED, WAITING, ChildSpec, ChildStatus

MAX_BYTES = 2_000_000


class ChildLog:
    """One log file and its predecessor `.1`. A child appends to it through a separate descriptor."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self) -> int:
        """Return a descriptor for appending. The caller closes it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self.trim()
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def trim(self) -> None:
        """Move the content to the predecessor if it exceeds MAX_BYTES.

        The file is copied and truncated, not renamed, because the child still writes to it. Lines written in between
        are lost.
        """
        try:
            if self._path.stat().st_size <= MAX_BYTES:
                return
        except FileNotFoundError:
            return
        # Copied, not renamed: the child keeps writing through its own descriptor.
        shutil.copyfile(self._path, self._path.with_name(self._path.name + ".1"))
        os.truncate(self._path, 0)


logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0
PROVEN_S = 5.0
"""Minimum run time after which a child restarts after the first pause. If it runs shorter, the pause doubles."""
STANDBY_S = 0.5
"""Delay between the start of a child and of its standby. The standby takes over immediately, unless the previous child
ended early, too.
"""
TERM_S = 2.0
"""Time between SIGTERM and SIGKILL."""
TRIM_S = 10.0


class Supervisor:
    """The children and their states. Mutable state: `_children` and the tasks that run them.

    `on_end` is called in a thread with the name and exit status of a child that ended by itself.
    """

    def __init__(self, log_dir: Path, on_end: Callable[[str, int], None] = lambda _name, _status: None) -> None:
        self._log_dir, self._on_end = log_dir, on_end
        self._children: dict[str, _Child] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, specs: Iterable[ChildSpec]) -> None:
        """Start children and restart them when they end. Raises ValueError if a name is already used."""
        for spec in specs:
            if spec.name in self._children:
                raise ValueError(f"there is a child named {spec.name} already")
            child = _Child(spec, ChildLog(self._log_dir / f"{spec.name}.log"), self._on_end)
            self._children[spec.name] = child
            self._tasks[spec.name] = asyncio.create_task(child.keep(), name=f"child {spec.name}")

    async def stop(
        self,
        names: Iterable[str] | None = None,
        *,
        sign: signal.Signals = signal.SIGTERM,
        patience_s: float | None = None,
    ) -> None:
        """End the named children (None: all) together. Send `sign`, then SIGKILL after `patience_s` (None: TERM_S)."""
        ending = [name for name in (self._children if names is None else names) if name in self._tasks]
        for name in ending:
            self._children[name].ends_with = (sign, TERM_S if patience_s is None else patience_s)
        tasks = [self._tasks.pop(name) for name in ending]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def follow(self, specs: Iterable[ChildSpec], owned: Callable[[str], bool]) -> None:
        """Align the children whose names are `owned` with these: start, end, and restart children that differ.

        A child with a changed command is ended first, so that its ports are free.
        """
        wanted = {spec.name: spec for spec in specs}
        there = {name: child.spec for name, child in self._children.items() if owned(name)}
        leaving = [name for name, spec in there.items() if wanted.get(name) != spec]
        # Ended first, so that their ports are free for the new ones.
        await self.stop(leaving)
        for name in leaving:
            del self._children[name]
        self.start(spec for name, spec in sorted(wanted.items()) if name not in self._children)

    def kill(self) -> None:
        """Kill all children without waiting. Callable from any thread of a process that is about to end."""
        for status in self.statuses():
            if status.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(status.pid, signal.SIGKILL)

    def statuses(self) -> tuple[ChildStatus, ...]:
        """Return the states of all children, ordered by name. Callable from any thread."""
        # A copy: the event loop's thread may add or remove children meanwhile.
        children = dict(self._children)
        return tuple(children[name].status for name in sorted(children))


class _Child:
    """One child across all its starts.

    Mutable state: `status`, which each change replaces, `ends_with`, and the standby, if any.
    """

    def __init__(self, spec: ChildSpec, log: ChildLog, on_end: Callable[[str, int], None]) -> None:
        self.spec = spec
        self._log, self._on_end = log, on_end
        self.status = ChildStatus(spec.name, STARTING, None, 0, None)
        self.ends_with = (signal.SIGTERM, TERM_S)
        """The signal that ends the child, and the time limit before SIGKILL."""
        self._standby: asyncio.subprocess.Process | None = None

    async def keep(self) -> None:
        """Run the child repeatedly until cancelled, then end it."""
        pause_s, early = FIRST_PAUSE_S, 0
        try:
            while True:
                ran_s = await self._run_once()
                early = 0 if ran_s >= PROVEN_S else early + 1
                pause_s = FIRST_PAUSE_S if not early else min(LONGEST_PAUSE_S, pause_s * 2)
                # A standby takes over without a pause, unless children keep ending early.
                if early > 1 or not self._has_standby():
                    await asyncio.sleep(pause_s)
        finally:
            if self._standby is not None:
                await _end(self._standby, signal.SIGKILL, TERM_S)
            self._change(STOPPED, None)

    async def _run_once(self) -> float:
        """Start the child, wait for its end, and return how many seconds it ran."""
        began = time.monotonic()
        try:
            process = await self._next()
        except OSError as error:
            logger.error("a child cannot be started", extra={"child": self.spec.name, "error": str(error)})
            self._change(WAITING, None)
            return 0.0
        self._change(RUNNING, process.pid, starts=self.status.starts + 1)
        try:
            await self._wait(process)
        finally:
            await _end(process, *self.ends_with)
            self._change(WAITING, None, exit_status=process.returncode)
        logger.warning("a child ended", extra={"child": self.spec.name, "exit_status": process.returncode})
        if process.returncode is not None:
            # Not awaited: the child's next start does not wait for the database.
            _ = asyncio.get_running_loop().run_in_executor(None, self._on_end, self.spec.name, process.returncode)
        return time.monotonic() - began

    async def _next(self) -> asyncio.subprocess.Process:
        """Return a process to run: the standby, or a new one."""
        standby, self._standby = self._standby, None
        process = standby if standby is not None and standby.returncode is None else await self._spawn()
        # The byte makes a standby take over.
        if process.stdin is not None:
            process.stdin.write(b"\n")
        return process

    def _has_standby(self) -> bool:
        return self._standby is not None and self._standby.returncode is None

    async def _spawn(self) -> asyncio.subprocess.Process:
        log = self._log.open()
        try:
            return await asyncio.create_subprocess_exec(
                *self.spec.argv,
                stdin=asyncio.subprocess.PIPE if self.spec.standby else asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.spec.env},
                # A group, no session: Linux divides the CPU among sessions first, so that the lower priority of web
                # and jobs (autogroup, sched(7)) would hold against no other group.
                process_group=0,
                pass_fds=self.spec.pass_fds,
            )
        finally:
            os.close(log)

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        # A standby that keeps ending is only retried now and then.
        standby_in_s = STANDBY_S
        while process.returncode is None:
            wants_standby = self.spec.standby and not self._has_standby()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(standby_in_s if wants_standby else TRIM_S):
                    await process.wait()
            standby_in_s = PROVEN_S
            self._log.trim()
            if self.spec.standby and process.returncode is None and not self._has_standby():
                with contextlib.suppress(OSError):
                    self._standby = await self._spawn()

    def _change(
        self, state: str, pid: int | None, *, starts: int | None = None, exit_status: int | None = None
    ) -> None:
        old = self.status
        self.status = ChildStatus(
            name=old.name,
            state=state,
            pid=pid,
            starts=old.starts if starts is None else starts,
            exit_status=old.exit_status if exit_status is None else exit_status,
        )


async def _end(process: asyncio.subprocess.Process, first: signal.Signals, patience_s: float) -> None:
    """End the child's whole process group and wait until it has ended."""
    for sign, wait_s in ((first, patience_s), (signal.SIGKILL, TERM_S)):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            # The whole group: a child may have children of its own.
            os.killpg(process.pid, sign)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await process.wait()
