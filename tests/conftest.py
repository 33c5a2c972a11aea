"""Fixtures of all tests, which use no state directory but their own."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from django.conf import settings
from django.test import override_settings
from xdist.scheduler import LoadFileScheduling

from tests.browser import kept_browser
from tests.private_redis import PrivateRedis, private_bus
from tests.program import SHARING, file_of, shared_program

# How long an example takes says something about the machine, nothing about the code.
hypothesis.settings.register_profile(
    "headway",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "40")),
    # `make test` tries the same examples each time; `make fuzz` tries others.
    derandomize="FUZZ_EXAMPLES" not in os.environ,
)
hypothesis.settings.load_profile("headway")

LONGEST_FIRST = ("end_to_end", "hard_edges", "web", "bench")
"""Rooms whose files of processes and browsers take longest; started last they would leave the other cores idle."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Disable garbage collection while thousands of tests are collected, and freeze the collected objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


class SharedProgramScheduling(LoadFileScheduling):  # type: ignore[misc]
    """Schedules whole files per worker, and files that share a program as one file."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "shared program" if file in SHARING else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return SharedProgramScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End what the next test does not use, after the fixtures that used it."""
    kept_browser.end_before(nextitem)
    shared_program.end_before(nextitem)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the long files first. The order within a file is unchanged."""
    items.sort(key=_start_order)


def _starts_processes(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(mark) for mark in ("processes", "browser"))


def _start_order(item: pytest.Item) -> int:
    if (file := file_of(item)) in SHARING:
        return SHARING.index(file) - len(SHARING)
    room = file.split("/")[1]
    if not (_starts_processes(item) or item.get_closest_marker("long")):
        return len(LONGEST_FIRST) + 1
    return LONGEST_FIRST.index(room) if room in LONGEST_FIRST else len(LONGEST_FIRST)


@pytest.fixture(scope="session", autouse=True)
def own_state_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Put secrets, locks, snapshots, and logs of the run in a temporary directory."""
    directory = tmp_path_factory.mktemp("state")
    # Most tests register engines at private addresses, which an installation has to allow.
    networks = tuple(ip_network(name) for name in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"))
    with override_settings(STATE_DIR=directory, ENGINE_NETWORKS=networks):
        yield directory


@pytest.fixture(scope="session")
def bus_server() -> Iterator[PrivateRedis]:
    """Run one server for the tests of a worker that need any bus between processes. Each has its own fleet secret."""
    with private_bus() as server:
        yield server


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> Iterator[None]:
    """Let the database be removed beside Playwright, whose event loop runs in this thread until the session ends."""
    yield
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"


@pytest.fixture(scope="session")
def django_db_modify_db_settings(own_state_dir: Path) -> None:
    """Use a database file instead of memory, so that threads and the WAL behave as in production."""
    if settings.DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
        from django.db import connections

        connections["default"].settings_dict["TEST"]["NAME"] = str(own_state_dir / "test.sqlite3")
