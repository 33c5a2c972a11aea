"""A temporary copy of the tree, in which removals are applied, tested, and reverted."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.house.removals.removal import Edit, Removal

PASSED, FAILED, HUNG, BROKEN = "passed", "failed", "hung", "broken"
"""Results of a test run. BROKEN: pytest could not run the tests."""
_LINKED = (".venv", "node_modules")
_LEFT_OUT = (".git", "var", "__pycache__", ".*_cache", ".hypothesis")
_PATIENCE = Edit("tests/patience.py", "PATIENCE_S = 180.0", "PATIENCE_S = 60.0")
"""Shorter timeouts, since a test without its mechanism waits in vain. No other tests run at the same time."""
_GRACE_S = 20.0


class Run(msgspec.Struct, frozen=True):
    """The result of a run of named tests."""

    how: str
    why: str
    """The first test that failed, or pytest's message."""
    seconds: float
    passed: tuple[str, ...]
    """Function names of the tests with a case that passed."""


class TreeCopy:
    """The copy of one tree. Mutable: the files that a removal changes while its block runs."""

    def __init__(self, tree: Path, directory: Path) -> None:
        self.path = directory / "tree"
        self._directory = directory
        shutil.copytree(tree, self.path, symlinks=True, ignore=shutil.ignore_patterns(*_LINKED, *_LEFT_OUT))
        for name in _LINKED:
            if (tree / name).exists():
                (self.path / name).symlink_to((tree / name).resolve())
        patience = self.path / _PATIENCE.file
        patience.write_text(_PATIENCE.applied(patience.read_text(encoding="utf-8")), encoding="utf-8")

    @contextmanager
    def without(self, removal: Removal) -> Iterator[None]:
        """Remove a part during the context."""
        texts = removal.texts(self.path)
        saved = {self.path / name: (self.path / name).stat() for name in texts}
        before = {path: path.read_bytes() for path in saved}
        try:
            for name, text in texts.items():
                (self.path / name).write_text(text, encoding="utf-8")
            yield
        finally:
            for path, content in before.items():
                path.write_bytes(content)
                # Compiled files are matched by time and size.
                os.utime(path, ns=(saved[path].st_atime_ns, saved[path].st_mtime_ns))

    def run(self, tests: Sequence[tuple[str, str]], limit_s: float, *, until_failure: bool = True) -> Run:
        """Run these tests, given as (file, function name)."""
        report, state_dir = self._directory / "report.xml", self._directory / "state"
        report.unlink(missing_ok=True)
        shutil.rmtree(state_dir, ignore_errors=True)
        names = [node_id(self.path, file, name) for file, name in tests]
        # Schemathesis, which no named test uses, takes a third of pytest's start.
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", f"--junit-xml={report}"]
        options += ["-x"] if until_failure else []
        begin_s = time.monotonic()
        code, output = self._run([sys.executable, "-m", "pytest", *options, *names], state_dir, limit_s)
        seconds = round(time.monotonic() - begin_s, 1)
        passed, failed = _cases(report, {name for _, name in tests})
        if code is None:
            return Run(HUNG, f"longer than {limit_s:.0f} s", seconds, ())
        if code == 0:
            return Run(PASSED, "", seconds, passed)
        if not failed:
            return Run(BROKEN, output[-300:], seconds, passed)
        return Run(FAILED, failed, seconds, passed)

    def _run(self, command: Sequence[str], state_dir: Path, limit_s: float) -> tuple[int | None, str]:
        """Return the exit code (None on timeout) and the output."""
        environment = {**os.environ, "HEADWAY_STATE_DIR": str(state_dir)}
        with (self._directory / "output").open("w+b") as output:
            process = subprocess.Popen(
                command, cwd=self.path, env=environment, stdout=output, stderr=output, start_new_session=True
            )
            try:
                code = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _interrupt(process)
            output.seek(0)
            return code, output.read().decode(errors="replace").strip()


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """Interrupt running tests, so that they end their child processes, and then stop."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _cases(report: Path, names: Collection[str]) -> tuple[tuple[str, ...], str]:
    """Return the function names of tests with a case that passed, and the first case that failed.

    A module that cannot be imported has no case.
    """
    if not report.exists():
        return (), ""
    passed, failed = set(), ""
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it
        name = case.get("name", "")
        function, kinds = name.partition("[")[0], {item.tag for item in case}
        if function not in names:
            continue
        if kinds & {"failure", "error"}:
            failed = failed or name
        elif "skipped" not in kinds:
            passed.add(function)
    return tuple(sorted(passed)), failed


def node_id(tree: Path, file: str, name: str) -> str:
    """Return pytest's name of a test, with its class if it has one."""
    module = ast.parse((tree / file).read_text(encoding="utf-8"))
    for node in module.body:
        if isinstance(node, ast.ClassDef) and any(getattr(item, "name", "") == name for item in node.body):
            return f"{file}::{node.name}::{name}"
    return f"{file}::{name}"
