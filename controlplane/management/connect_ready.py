"""The end of `manage.py connect`: waits until the gateway serves the engines, and prints the first request."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from shlex import quote

from django.conf import settings
from django.core.management.base import OutputWrapper
from django.utils import timezone

from controlplane.access.api_keys import create_api_key
from controlplane.doctor.installation import Installation
from controlplane.doctor.local_server import answer_of
from controlplane.fleet.models.engine import Engine
from controlplane.management.first_tenant import tenant_for_key
from controlplane.platform.actor import command
from controlplane.platform.models.api_key import ApiKey

SERVED_S = 60.0
"""A snapshot reaches the gateway within a second, and its first probe follows at once; a busy machine takes longer."""
_LOOK_S = 0.3
_KEY = "$SWITCHYARD_API_KEY"


def ready_to_ask(out: OutputWrapper, engines: Sequence[Engine], port: int) -> None:
    """Tell whether the gateway serves the engines, make the first API key where there is none, and print a request."""
    here = Installation(settings.STATE_DIR, "127.0.0.1", port, settings.REDIS_URL, timezone.now())
    missing = _missing(here, {engine.engine_id for engine in engines})
    out.write("")
    if missing is None:
        out.write(f"Switchyard does not answer on port {port}. Start it with `make up`, or name its port with --port.")
    elif missing:
        out.write(f"The gateway does not serve {', '.join(sorted(missing))} yet; see the Topology page.")
    key = _first_key()
    if key and missing is not None:
        _wait_until_known(here, key)
    if key:
        out.write(f"API key (shown once): {key}")
    messages = [{"role": "user", "content": "Hello"}]
    body = {"model": engines[0].pool.served_model, "max_tokens": 16, "messages": messages}
    out.write("Ask:")
    out.write(f"  curl -i http://127.0.0.1:{port}/v1/chat/completions \\\n    -H 'Content-Type: application/json' \\")
    bearer = f"'Authorization: Bearer {key}'" if key else f'"Authorization: Bearer {_KEY}"'
    out.write(f"    -H {bearer} \\\n    -d {quote(json.dumps(body))}")


def _missing(here: Installation, wanted: set[str]) -> set[str] | None:
    """Wait until the gateway's metrics show all engines serving; returns those that do not, None without a gateway."""
    until_s = time.monotonic() + SERVED_S
    while (text := answer_of(here, "/metrics")) is not None:
        missing = wanted - _serving(text.decode())
        if not missing or time.monotonic() > until_s:
            return missing
        time.sleep(_LOOK_S)
    return None


def _wait_until_known(here: Installation, key: str) -> None:
    """Return once the gateway knows the key, so that the printed request is not rejected, or when it takes too long."""
    until_s = time.monotonic() + SERVED_S
    while answer_of(here, "/v1/models", key=key) is None and time.monotonic() < until_s:
        time.sleep(_LOOK_S)


def _serving(metrics: str) -> set[str]:
    found = re.findall(r"^switchyard_engine_state\{([^}]*)\} 1(?:\.0)?$", metrics, re.MULTILINE)
    return {name[1] for labels in found if 'state="serving"' in labels and (name := _ENGINE.search(labels))}


def _first_key() -> str:
    """Make a key where there is none yet; empty otherwise."""
    if ApiKey.objects.filter(revoked_at=None).exists():
        return ""
    actor = command("connect")
    _, text = create_api_key(tenant_for_key("", actor=actor), "connect", actor=actor, scopes=("infer", "route"))
    return text


_ENGINE = re.compile(r'engine="([^"]*)"')
