"""R45: no data that this program reads from a network or a store can be executed as code."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import kombu.serialization
import pytest
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore
from kombu.exceptions import ContentDisallowed

from controlplane.project.celery import app

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("kvstore", "routing", "planning", "gateway", "simulator", "controlplane", "web", "bench")
SOURCES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve", "jsonpickle", "joblib", "code"}
CALLS = {"eval", "exec", "compile", "__import__"}
ATTRIBUTES = {("yaml", "load"), ("yaml", "unsafe_load"), ("yaml", "full_load"), ("os", "system"), ("os", "popen")}


WORDS = {*(MODULES - {"code"}), "import code", "from code", *CALLS, "yaml", "system", "popen", "shell", "allow_pickle"}
SUSPECT = re.compile(rf"\b({'|'.join(sorted(WORDS))})\b|_pyobj")
"""Words of which each offence has one: to parse all files takes much longer than to search them."""


def offences(path: Path) -> Iterator[str]:
    text = path.read_text()
    for node in ast.walk(ast.parse(text)) if SUSPECT.search(text) else ():
        where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            yield from (f"{where} import {name.name}" for name in node.names if name.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            yield f"{where} from {node.module}"
        elif isinstance(node, ast.Call):
            yield from _call(node, where)


def _call(node: ast.Call, where: str) -> Iterator[str]:
    called = node.func
    if isinstance(called, ast.Name) and called.id in CALLS:
        yield f"{where} {called.id}()"
    if isinstance(called, ast.Attribute):
        if isinstance(called.value, ast.Name) and (called.value.id, called.attr) in ATTRIBUTES:
            yield f"{where} {called.value.id}.{called.attr}()"
        if called.attr in ("recv_pyobj", "send_pyobj"):
            yield f"{where} {called.attr}()"
    for keyword in node.keywords:
        if keyword.arg in ("shell", "allow_pickle") and getattr(keyword.value, "value", None) is True:
            yield f"{where} {keyword.arg}=True"


def test_no_source_deserializes_code() -> None:
    assert len(SOURCES) > 100
    assert [offence for path in SOURCES for offence in offences(path)] == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from marshal import loads",
        "import yaml\nyaml.load(x)",
        "eval('1')",
        "socket.recv_pyobj()",
        "numpy.load(f, allow_pickle=True)",
        "subprocess.run(x, shell=True)",
    ],
)
def test_check_reports_every_banned_call_and_import(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.hard_edges.test_no_code_on_wires.ROOT", tmp_path)
    path = tmp_path / "x.py"
    path.write_text(source)
    assert list(offences(path))


def test_jobs_accept_json_only() -> None:
    assert list(app.conf.accept_content) == ["json"]
    assert app.conf.task_serializer == "json"
    assert app.conf.result_accept_content in (None, ["json"])
    payload = b"\x80\x04}\x94."  # An empty dict, as a careless producer would send it.
    with pytest.raises(ContentDisallowed):
        kombu.serialization.loads(payload, "application/x-python-serialize", "binary", accept=app.conf.accept_content)


def test_sessions_are_serialized_as_json() -> None:
    assert settings.SESSION_SERIALIZER.endswith("JSONSerializer")
    assert issubclass(import_module(settings.SESSION_ENGINE).SessionStore, SessionStore)


def test_messages_to_jobs_have_no_arguments() -> None:
    app.loader.import_default_modules()
    jobs = {name: task for name, task in app.tasks.items() if name.startswith("controlplane.")}
    assert len(jobs) >= 15
    assert [name for name, task in jobs.items() if inspect.signature(task.run).parameters] == []
