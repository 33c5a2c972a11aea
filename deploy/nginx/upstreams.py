"""Renders upstreams.conf: one upstream per engine, one per pool, and the maps that select them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

BACKUPS = 2
"""Further engines of the pool to try if the chosen engine accepts no connection or closes it without an answer."""
KEEPALIVE = "keepalive 32; keepalive_timeout 4s;"
"""Shorter than the 5 s after which vLLM and SGLang close idle connections, which would force a retry."""
_PLAIN = re.compile(r"http://((?:[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\]):\d+)/?")
_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class UpstreamPool:
    """A pool, with its engines' addresses by id. If `salted`, its engines accept only requests with a decision."""

    name: str
    served_model: str
    salted: bool
    engines: dict[str, str]


def render(pools: Sequence[UpstreamPool]) -> str:
    """Return the text of upstreams.conf. The same fleet always gives the same text."""
    pools = sorted(pools, key=lambda pool: pool.name)
    return "\n".join(["# Written by python -m deploy.nginx.", *_upstreams(pools), *_maps(pools), ""])


def skipped(pools: Iterable[UpstreamPool]) -> list[str]:
    """Return the engines that get no upstream because their address is not plain http with a port."""
    return [engine for pool in pools for engine, url in pool.engines.items() if not _PLAIN.fullmatch(url)]


def _upstreams(pools: Sequence[UpstreamPool]) -> list[str]:
    lines = []
    for pool in pools:
        engines = _addresses(pool)
        if engines:
            servers = [f"server {address};" for address in dict.fromkeys(address for _, address in engines)]
            lines.append(_upstream(f"headway_pool_{_named(pool.name)}", servers))
        for index, (engine, address) in enumerate(engines):
            # Data-parallel ranks of one process share one address, so they are no backup for each other.
            around = [other for _, other in (*engines[index + 1 :], *engines[:index]) if other != address]
            others = list(dict.fromkeys(around))[:BACKUPS]
            # max_fails=0: nginx always tries the engine first, since Headway decides whether it is healthy.
            servers = [f"server {address} max_fails=0;", *(f"server {other} backup;" for other in others)]
            lines.append(_upstream(f"headway_engine_{engine}", servers))
    return lines


def _upstream(name: str, servers: Sequence[str]) -> str:
    return f"upstream {name} {{ {' '.join(servers)} {KEEPALIVE} }}"


def _maps(pools: Sequence[UpstreamPool]) -> list[str]:
    models: dict[str, str] = {}
    for pool in pools:
        if _addresses(pool) and not pool.salted:
            models.setdefault(pool.served_model, f"headway_pool_{_named(pool.name)}")
    engines = {engine: f"headway_engine_{engine}" for pool in pools for engine, _ in _addresses(pool)}
    return [
        # By default the address itself: an engine newer than this file is reached without keep-alive.
        _map("$headway_engine $headway_upstream", "$headway_address", engines),
        _map("$headway_model $headway_pool", '""', {_quoted(model): name for model, name in models.items()}),
    ]


def _map(names: str, default: str, entries: dict[str, str]) -> str:
    rows = "".join(f"    {key} {value};\n" for key, value in sorted(entries.items()))
    return f"map {names} {{\n    default {default};\n{rows}}}"


def _addresses(pool: UpstreamPool) -> list[tuple[str, str]]:
    plain = ((engine, _PLAIN.fullmatch(url)) for engine, url in sorted(pool.engines.items()) if _NAME.fullmatch(engine))
    return [(engine, match[1]) for engine, match in plain if match]


def _named(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a slug")
    return name


def _quoted(model: str) -> str:
    """Return a model's name as a map key. Raise ValueError if nginx would parse it differently."""
    if re.search(r"[\x00-\x1f\"\\$~]", model):
        raise ValueError(f"nginx cannot map the model name {model!r}")
    return f'"{model}"'
