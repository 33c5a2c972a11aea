"""The program's surface without serving a request: API, metrics, URLs, tables, options, simulations."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kvstore.keys.keyring import Keyring

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("kvstore", "routing", "planning", "gateway", "simulator", "controlplane", "web")
TRACE = ("toolagent_like", "--requests", "3000", "--qps", "8", "--engines", "8", "--seed", "7")


def set_up(state_dir: Path) -> None:
    """Prepare Django with a separate, empty, and migrated database under `state_dir`."""
    os.environ["HEADWAY_STATE_DIR"] = str(state_dir / "state")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.project.settings")
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0, interactive=False)


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document."""
    from controlplane.platform.api.openapi import openapi_document

    document: dict[str, Any] = json.loads(json.dumps(openapi_document(), default=str))
    return document


def metrics(state_dir: Path) -> list[dict[str, Any]]:
    """Return name, type, labels and help of every series that /metrics can export."""
    from gateway.bus.bus import InProcessBus
    from gateway.bus.bus_metrics import BusMetrics, ScalingPlans, WakeUpAge

    gateway = _gateway(state_dir)
    registry = gateway.metrics.registry
    WakeUpAge(registry, InProcessBus())
    ScalingPlans(registry, InProcessBus())
    bus: Any = SimpleNamespace(
        state=SimpleNamespace(connected=True, since_s=0.0, connections=0, dropped=0, unreadable=0)
    )
    BusMetrics(registry, bus)
    families = [
        {
            "name": family.name,
            "type": family.type,
            "labels": getattr(family, "_labelnames", None) or sorted(_labels(family)),
            "help": family.documentation,
        }
        for family in registry.collect()
    ]
    return sorted(families, key=lambda item: item["name"])


def _labels(family: Any) -> set[str]:
    return {label for sample in family.samples for label in sample.labels}


def _gateway(state_dir: Path) -> Any:
    from gateway.base.settings import GatewaySettings
    from gateway.bus.bus import InProcessBus
    from gateway.gateway import Gateway

    return Gateway(
        InProcessBus(), keyring=Keyring.of(b"s"), state_dir=state_dir / "gateway", settings=GatewaySettings()
    )


def urls(state_dir: Path) -> dict[str, list[list[str]]]:
    """Return the routes and names of Django and its websockets, in order, and the gateway's paths."""
    from django.urls import get_resolver

    from gateway.app import GatewayApp
    from web.live.routing import websocket_urlpatterns

    app = GatewayApp(_gateway(state_dir))
    own = [[path, method] for path, (method, _) in app._exact.items()]
    below = [[prefix + "…", method] for prefix, method, _ in app._below]
    return {
        "pages and API": list(_routes(get_resolver().url_patterns)),
        "websockets": list(_routes(websocket_urlpatterns)),
        "gateway": sorted([*own, *below, *([path, "GET"] for path in app._open)]),
    }


def _routes(patterns: Any, prefix: str = "") -> Iterator[list[str]]:
    for pattern in patterns:
        route = prefix + str(pattern.pattern)
        if hasattr(pattern, "url_patterns"):
            yield from _routes(pattern.url_patterns, route)
        else:
            yield [route, pattern.name or ""]


def database_schema() -> list[str]:
    """Return the sorted statements that create every table and index, with columns in any order."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'")
        return sorted(str(row[0]) for row in cursor.fetchall())


def simulations(state_dir: Path) -> list[dict[str, Any]]:
    """Return the reports of every placement with every order over one generated trace, without their durations."""
    out = state_dir / "simulate.json"
    _run("manage.py", "simulate", *TRACE, "--all", "--json", str(out))
    reports: list[dict[str, Any]] = json.loads(out.read_text())
    for report in reports:
        del report["wall_s"]
    return reports


def flags() -> dict[str, Any]:
    """Return the help of every command, and every read of an environment variable."""
    from django.core.management import get_commands

    own = sorted(name for name, app in get_commands().items() if str(app).partition(".")[0] in ROOMS)
    commands = [("manage.py", name) for name in own] + [("-m", "gateway"), ("-m", "simulator.workloads")]
    helped = {" ".join(command): _run(*command, "--help") for command in commands}
    return {"commands": helped, "environment": sorted(set(_reads_of_environment()))}


def _run(*arguments: str) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed: {done.stderr[-2000:]}")
    return done.stdout


def environment(state_dir: Path | None = None) -> dict[str, str]:
    """Return a child's environment: only the caller's PATH, and the child's state directory."""
    state = {"HEADWAY_STATE_DIR": str(state_dir)} if state_dir else {}
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "HEADWAY_STATE_DIR") if name in os.environ}
    return {**kept, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONHASHSEED": "0", **state}


def _reads_of_environment() -> Iterator[str]:
    """Yield each read of the environment as written, including keyword arguments."""
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                read = ast.unparse(node) if isinstance(node, ast.Call | ast.Subscript) else ""
                if re.match(r"(os\.)?(env|environ|getenv)\b[\w.]*[(\[]'(?!DJANGO_)[A-Z]", read):
                    yield read
