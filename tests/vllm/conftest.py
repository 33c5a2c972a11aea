"""Two real vLLM engines and a Headway that one command has connected to them. `make test-vllm` runs these tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.vllm.attached import Headway, running_headway
from tests.vllm.real_engine import RealEngine, while_running

PYTHON = os.environ.get("VLLM_PYTHON", "")
"""The Python that has vLLM; without it, not even the tests' imports run."""
MODEL = Path(os.environ.get("VLLM_MODEL", ""))
collect_ignore_glob = [] if PYTHON else ["test_*.py", "*/test_*.py"]
TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")

StartEngines = Callable[..., list[RealEngine]]


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vllm")


@pytest.fixture(scope="session")
def engines(logs: Path) -> Iterator[list[RealEngine]]:
    """Run two engines of one model."""
    made = [RealEngine(PYTHON, MODEL, logs / f"engine-{number}.log", flags=TOOLS) for number in range(2)]
    with while_running(made):
        yield made


@pytest.fixture
def started(logs: Path) -> Iterator[StartEngines]:
    """Start more engines with separate settings; they end with the test, since probes alone keep them busy."""
    with ExitStack() as stack:

        def start(*settings: dict[str, Any]) -> list[RealEngine]:
            made = [
                RealEngine(PYTHON, MODEL, logs / f"{setting['name']}-{number}.log", **setting)
                for number, setting in enumerate(settings)
            ]
            return stack.enter_context(while_running(made))

        yield start


@pytest.fixture(scope="session")
def transcript() -> list[str]:
    """Return the output of `headway`'s connect command."""
    return []


@pytest.fixture(scope="session")
def headway(engines: list[RealEngine], logs: Path, transcript: list[str]) -> Iterator[Headway]:
    """Run `manage.py up` with both engines connected by one command."""
    with running_headway(logs / "var") as running:
        transcript.append(running.connect(*engines))
        yield running
