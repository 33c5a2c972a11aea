"""Do the engines answer, and are their blocks those of their pools?"""

from __future__ import annotations

import http.client
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

from django.db import DatabaseError

from controlplane.doctor.finding import Finding, ok, warning
from controlplane.doctor.installation import Installation
from controlplane.fleet.block_sizes import block_size_problems
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.pool_roles import role_problems
from gateway.engines.engine_metrics import MAX_BYTES, UnreadableMetricsError, parse_engine_metrics
from routing.values.counted import count

_AT_ONCE = 16
_MOST = 200
_TIMEOUT_S = 2.0
_NAMED = 5
_FIRST = "Fix the database connection, then run `manage.py migrate`; `manage.py up` does that itself."


def look(installation: Installation) -> list[Finding]:
    """Ask whether engines answer, and whether their roles fit together."""
    return [*_health(installation), *_roles()]


def _roles() -> list[Finding]:
    try:
        rows = list(Engine.objects.values_list("pool__slug", "role"))
    except DatabaseError:
        return []
    pools: dict[str, Counter[str]] = {}
    for slug, role in rows:
        pools.setdefault(slug, Counter())[role] += 1
    return [
        warning(f"Pool {slug}: {fault}.", "Change the roles of its engines on the Topology page.")
        for slug, roles in sorted(pools.items())
        for fault in role_problems(roles)
    ]


def _health(_installation: Installation) -> list[Finding]:
    """Ask /health of the first engines that should serve; redirects are not followed."""
    try:
        ready = Engine.objects.filter(desired_state="ready").select_related("pool")
        engines = list(ready.order_by("engine_id")[:_MOST])
    except DatabaseError as error:
        return [warning(f"Cannot read the engines: {type(error).__name__}.", _FIRST)]
    if not engines:
        return [
            warning(
                "No engine is ready to serve.", "Run `manage.py connect URL`, or set one to ready on the Topology page."
            )
        ]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        answers = list(threads.map(lambda engine: _why_not(engine.connect_url), engines))
        told = list(threads.map(lambda engine: _block_tokens(engine.connect_url), engines))
    return [*_answering(engines, answers), *_block_sizes(engines, told)]


def _block_sizes(engines: Sequence[Engine], told: Sequence[int | None]) -> list[Finding]:
    seen = [(engine.pool.slug, engine.name, tokens) for engine, tokens in zip(engines, told, strict=True)]
    pools = {engine.pool.slug: engine.pool for engine in engines}
    return [warning(each.sentence, each.remedy) for each in block_size_problems(pools.values(), seen)]


def _answering(engines: Sequence[Engine], answers: Sequence[str]) -> list[Finding]:
    silent = [(engine.engine_id, why) for engine, why in zip(engines, answers, strict=True) if why]
    if not silent:
        return [ok(f"{count(len(engines), 'engine answers', 'engines answer')}.")]
    names = ", ".join(f"{engine_id} ({why})" for engine_id, why in silent[:_NAMED])
    more = f" and {len(silent) - _NAMED} more" if len(silent) > _NAMED else ""
    return [
        warning(
            f"No answer from {len(silent)} of {count(len(engines), 'engine')} that should serve: {names}{more}.",
            "Start them, correct their address, or take them out of service on the Topology page. Demo engines run "
            "only while `manage.py up` runs.",
        )
    ]


def _why_not(url: str) -> str:
    try:
        status, _ = _get(url, "/health")
        return "" if status == 200 else f"health check answers {status}"
    except TimeoutError:
        return f"no answer within {_TIMEOUT_S:.0f} s"
    except (OSError, http.client.HTTPException) as error:
        return getattr(error, "strerror", None) or type(error).__name__


def _block_tokens(url: str) -> int | None:
    """Return the engine's block size; None where it does not tell."""
    try:
        return parse_engine_metrics(_get(url, "/metrics")[1]).block_size
    except (OSError, http.client.HTTPException, UnreadableMetricsError):
        return None


def _get(url: str, path: str) -> tuple[int, bytes]:
    address = urlsplit(url)
    kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    connection = kind(address.hostname or "", address.port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", f"{address.path.rstrip('/')}{path}")
        answer = connection.getresponse()
        return answer.status, answer.read(MAX_BYTES)
    finally:
        connection.close()
