"""Checks whether pasted engines can be registered, and registers the engines that a preview showed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from controlplane.fleet.engine_addressing import engine_url_rules
from controlplane.fleet.engine_paste import PastedLine
from controlplane.fleet.engine_registration import SOCKET_FIELDS
from controlplane.fleet.engine_url import RejectedUrlError, check_engine_url, check_kv_endpoint
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.preflight.lifecycle import register_for_preflight
from controlplane.fleet.visibility import visible_pools
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.role import Role
from controlplane.platform.roles import NotAllowedError, may

_RESOLVERS = 16
"""Number of names resolved concurrently. Resolving a list of dead names one by one would take a minute."""


@dataclass(frozen=True, slots=True)
class Applied:
    """Result of registering a list: `engines` were registered, `lines` remain with their problems."""

    engines: tuple[Engine, ...]
    lines: tuple[PastedLine, ...]


@dataclass(frozen=True, slots=True)
class _Address:
    url: str = ""
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Taken:
    names: frozenset[tuple[str, str]]
    urls: frozenset[str]


def preview(lines: Sequence[PastedLine], default_pool: str, *, actor: Actor) -> list[PastedLine]:
    """Return the lines with pools filled in and all further problems. Nothing is stored."""
    pools = {pool.slug: pool for pool in visible_pools(actor)}
    filled = [_in_pool(line, default_pool) for line in lines]
    addresses = _addresses(filled, pools)
    names = [line.engine["name"] for line in filled if line.engine]
    urls = [address.url for address in addresses]
    taken = _Taken(
        frozenset(Engine.objects.filter(name__in=names).values_list("pool__slug", "name")),
        frozenset(Engine.objects.filter(url__in=urls).values_list("url", flat=True)),
    )
    return [
        _with(line, [*address.problems, *_problems(line.engine, address.url, pools, taken, actor)])
        if line.engine
        else line
        for line, address in zip(filled, addresses, strict=True)
    ]


def apply(lines: Sequence[PastedLine], shown: Collection[str], default_pool: str, *, actor: Actor, why: str) -> Applied:
    """Register the lines that the preview `shown` accepted, and skip all others.

    A line that can no longer be registered, for example because its name is in use by now, remains with its problem.
    """
    engines: list[Engine] = []
    left: list[PastedLine] = []
    pools = {pool.slug: pool for pool in visible_pools(actor)}
    for line in preview(lines, default_pool, actor=actor):
        if not line.fine or line.text not in shown or line.engine is None:
            left.append(line)
            continue
        try:
            engines.append(_register(line.engine, pools[line.engine["pool"]], actor, why))
        except (InvalidFieldsError, NotAllowedError, RejectedUrlError) as error:
            left.append(_with(line, [str(error)]))
    return Applied(tuple(engines), tuple(left))


def _register(pasted: Mapping[str, Any], pool: Pool, actor: Actor, why: str) -> Engine:
    fields = {name: value for name, value in pasted.items() if name not in ("pool", "name", "url")}
    return register_for_preflight(pool, pasted["name"], pasted["url"], actor=actor, why=why, **fields)


def _in_pool(line: PastedLine, default_pool: str) -> PastedLine:
    return replace(line, engine={"pool": default_pool, **line.engine}) if line.engine is not None else line


def _addresses(lines: Sequence[PastedLine], pools: Mapping[str, Pool]) -> list[_Address]:
    """Return, per line, the URL in its stored form and its problem under the address rules."""

    def checked(line: PastedLine) -> _Address:
        engine = line.engine
        if engine is None:
            return _Address()
        rules = engine_url_rules(pools.get(engine["pool"]))
        problems = []
        url = ""
        try:
            url = check_engine_url(engine["url"], rules).url
        except RejectedUrlError as error:
            problems.append(_sentence(error))
        for endpoint in filter(None, (engine.get(name) for name in SOCKET_FIELDS)):
            try:
                check_kv_endpoint(endpoint, rules)
            except RejectedUrlError as error:
                problems.append(_sentence(error))
        return _Address(url, tuple(problems))

    with ThreadPoolExecutor(max_workers=_RESOLVERS, thread_name_prefix="paste") as resolvers:
        return list(resolvers.map(checked, lines))


def _problems(engine: Mapping[str, Any], url: str, pools: Mapping[str, Pool], taken: _Taken, actor: Actor) -> list[str]:
    problems = []
    slug, name = engine["pool"], engine["name"]
    pool = pools.get(slug)
    if not slug:
        problems.append("No pool; add one to the line or choose one for all.")
    elif pool is None:
        problems.append(f"No pool {slug}; known are {', '.join(sorted(pools)) or 'none'}.")
    elif not may(actor, Role.OPERATOR, pool):
        problems.append(f"You cannot register engines in pool {slug}.")
    if (slug, name) in taken.names:
        problems.append(f"Pool {slug} already has an engine {name}.")
    if url in taken.urls:
        problems.append("An engine with this URL is already registered.")
    return problems


def _sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


def _with(line: PastedLine, problems: Sequence[str]) -> PastedLine:
    return replace(line, problems=(*line.problems, *problems)) if problems else line
