"""Plans the objects that connecting an engine creates or reuses, for display, and stores them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from ipaddress import collapse_addresses, ip_address, ip_network
from itertools import count as numbers
from shlex import quote
from typing import Any
from urllib.parse import urlsplit

from django.db import transaction

from controlplane.fleet.connect.address import is_allowed
from controlplane.fleet.connect.engine_facts import SGLANG, VLLM, ConnectedEngineFacts, ConnectRejectedError
from controlplane.fleet.engine_addressing import engine_url_rules
from controlplane.fleet.engine_paste import name_of_url
from controlplane.fleet.engine_registration import change_engine
from controlplane.fleet.engine_url import CheckedUrl, rank_of, ranked_url
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import KeySource, Pool
from controlplane.fleet.models.region import Region
from controlplane.fleet.preflight.engine_flags import block_size_flag, events_flag, usual_ports
from controlplane.fleet.preflight.lifecycle import register_for_preflight, start_preflight
from controlplane.fleet.ready_engines import others_in_use
from controlplane.fleet.topology import change_pool, create_pool, create_region
from controlplane.platform.actor import Actor
from controlplane.platform.format import some_names
from controlplane.platform.role import Role
from controlplane.platform.roles import require
from controlplane.policies.publish import usual_policy
from routing.values.counted import count

FIRST_REGION = "local"
WHY = "Connected"


@dataclass(frozen=True, slots=True)
class Wishes:
    """A person's deviations from the defaults. An empty value means the value that the engine reports."""

    pool: str = ""
    region: str = ""
    key_variable: str = ""
    approximate: bool = False
    """Whether cache keys are computed from prompt text: hits are estimated, and the engine needs no KV events."""


@dataclass(frozen=True, slots=True)
class EngineConnection:
    """The objects to create. Nothing is stored yet."""

    facts: ConnectedEngineFacts
    address: CheckedUrl
    model: str
    pool: Pool | None
    """The existing pool; None: create `pool_slug`."""
    pool_slug: str
    region_slug: str
    new_region: bool
    engine: Engine | None
    """The existing engine with this URL, which is only checked again."""
    engine_name: str
    networks: str
    """The pool's engine networks extended by this address; empty: unchanged."""
    exact: bool
    key_variable: str = ""


def targets(facts: ConnectedEngineFacts, address: CheckedUrl) -> list[tuple[ConnectedEngineFacts, CheckedUrl]]:
    """Return the routing targets behind an address: the engine, or each of its vLLM data-parallel ranks.

    Raises ConnectRejectedError for a rank that does not exist.
    """
    rank = rank_of(address.url)
    if rank is None and (facts.ranks == 1 or facts.product != VLLM):
        return [(facts, address)]
    ranks = [socket.data_parallel_rank for socket in facts.sockets] or list(range(facts.ranks))
    process = address.url.partition("#")[0]
    if rank is not None and rank not in ranks:
        raise ConnectRejectedError(f"It has no data-parallel rank {rank}.", f"Connect {process}, with all its ranks.")
    return [
        (facts.of_rank(item), replace(address, url=ranked_url(process, item))) for item in ranks if rank in (None, item)
    ]


def plan_connection(facts: ConnectedEngineFacts, address: CheckedUrl, wishes: Wishes = Wishes()) -> EngineConnection:
    """Return the objects that connecting the engine would create. Raises ConnectRejectedError."""
    engine = Engine.objects.select_related("pool__region").filter(url=address.url).first()
    pool = engine.pool if engine else _pool_for(facts, wishes)
    region, new_region = (pool.region.slug, False) if pool else _region_for(wishes)
    _reject_known_process(address.url)
    exact = pool.key_source == KeySource.EXACT if pool else not wishes.approximate
    slug = pool.slug if pool else _free_slug(wishes.pool or _slug(facts.names[0]))
    if exact:
        if pool is not None:
            _reject_other_blocks(facts, pool, engine)
        _reject_inexact(facts)
    return EngineConnection(
        facts=facts,
        address=address,
        model=pool.served_model if pool else facts.names[0],
        pool=pool,
        pool_slug=slug,
        region_slug=region,
        new_region=new_region,
        engine=engine,
        engine_name=engine.name if engine else _engine_name(address.url, pool),
        networks=_networks_with(address, pool),
        exact=exact,
        key_variable=wishes.key_variable,
    )


def make_connection(wanted: EngineConnection, *, actor: Actor) -> Engine:
    """Store the missing objects and start the engine's preflight, after which it serves. Admins only.

    Raises NotAllowedError, RejectedUrlError, InvalidFieldsError.
    """
    require(actor, Role.ADMIN)
    with transaction.atomic():
        pool = _allowed(wanted.pool, wanted, actor) if wanted.pool else _new_pool(wanted, actor)
        if wanted.engine is not None:
            return _checked_again(wanted.engine, wanted, actor)
        fields: dict[str, Any] = {**_sockets(wanted), "role": wanted.facts.role}
        return register_for_preflight(pool, wanted.engine_name, wanted.address.url, actor=actor, why=WHY, **fields)


def _checked_again(engine: Engine, wanted: EngineConnection, actor: Actor) -> Engine:
    if not engine.kv_events_endpoint and (sockets := _sockets(wanted)):
        change_engine(engine, sockets, actor=actor, why=WHY)
    start_preflight(engine, actor=actor, then_ready=True)
    return engine


def _sockets(wanted: EngineConnection) -> dict[str, str]:
    if not wanted.exact:
        return {}
    return {"kv_events_endpoint": wanted.facts.events, "kv_replay_endpoint": wanted.facts.replay}


def _pool_for(facts: ConnectedEngineFacts, wishes: Wishes) -> Pool | None:
    """Return the pool that serves the model, or None for a new pool.

    Each model has one pool, because requests name a model.
    """
    named = Pool.objects.select_related("region").filter(slug=wishes.pool).first()
    if named is not None and named.served_model not in facts.names:
        raise ConnectRejectedError(
            f"The engine serves {', '.join(facts.names)}; pool {named.slug} serves {named.served_model}.",
            f"Start it with --served-model-name {named.served_model}, or connect it without a pool.",
        )
    pools = list(Pool.objects.select_related("region").filter(served_model__in=facts.names))
    if named is None and pools and (wishes.pool or len(pools) > 1):
        slugs = _listed(pool.slug for pool in pools)
        raise ConnectRejectedError(f"{facts.names[0]} is served already, by {slugs}.", "Name that pool (--pool).")
    return named or (pools[0] if pools else None)


def _region_for(wishes: Wishes) -> tuple[str, bool]:
    """Return the region of a new pool, and whether the region is new too."""
    known = list(Region.objects.values_list("slug", flat=True))
    if wishes.region:
        return wishes.region, wishes.region not in known
    if len(known) > 1:
        raise ConnectRejectedError(
            f"There are {len(known)} regions: {_listed(known)}.", "Name the new pool's (--region)."
        )
    return (known[0], False) if known else (FIRST_REGION, True)


def _reject_known_process(url: str) -> None:
    """Reject a rank if its whole process is registered as one engine, to avoid counting its requests twice."""
    process, of_rank, _ = url.partition("#")
    whole = Engine.objects.filter(url=process).first() if of_rank else None
    if whole is not None:
        raise ConnectRejectedError(
            f"Engine {whole.name} is registered for all its ranks.",
            f"Drain and delete {whole.name}, then connect again.",
        )


def _reject_inexact(facts: ConnectedEngineFacts) -> None:
    """Reject an engine whose cache contents cannot be tracked exactly, and suggest a remedy."""
    if facts.ranks > 1:
        raise ConnectRejectedError(
            f"It has {facts.ranks} data-parallel ranks behind one address, each with its own cache.",
            "Start each rank as a separate engine and connect each.",
            estimable=True,
        )
    if flag := _missing_events(facts):
        sentence = "It publishes no KV events, so its cache contents are unknown."
        remedy = "Add this flag to its start command"
        if not facts.reports_sockets:
            ports = " or ".join(str(events) for events, _ in usual_ports(facts.url))
            sentence = f"It does not report its KV event socket, and no publisher answers at port {ports}."
            remedy = f"{remedy}, or register it on the Engines page with its event endpoint"
        raise ConnectRejectedError(sentence, f"{remedy}: {flag}", start_line=start_line(facts, flag), estimable=True)
    if not facts.tokenizes:
        raise ConnectRejectedError(
            "It has no /tokenize endpoint, which token blocks require.",
            "Use a version with this endpoint.",
            estimable=True,
        )


def _missing_events(facts: ConnectedEngineFacts) -> str:
    """Return the flag that enables the engine's KV events; empty if it publishes them."""
    return "" if facts.events else events_flag(facts.url, sglang=facts.product == SGLANG)


def _reject_other_blocks(facts: ConnectedEngineFacts, pool: Pool, engine: Engine | None) -> None:
    reported, wanted = facts.block_tokens, pool.block_tokens
    if reported is None or reported == wanted or not others_in_use(pool, engine):
        return
    flag = block_size_flag(wanted, sglang=facts.product == SGLANG)
    raise ConnectRejectedError(
        f"Its blocks have {count(reported, 'token')}, those of pool {pool.slug} {wanted}.",
        f"Start it with {flag}.",
        start_line=start_line(facts, f"{flag} {_missing_events(facts)}".strip()),
    )


def _new_pool(wanted: EngineConnection, actor: Actor) -> Pool:
    region = Region.objects.filter(slug=wanted.region_slug).first()
    region = region or create_region(wanted.region_slug, wanted.region_slug.capitalize(), actor=actor, why=WHY)
    facts = wanted.facts
    fields: dict[str, Any] = {
        "block_tokens": facts.block_tokens if wanted.exact else None,
        "max_prompt_tokens": facts.context_tokens,
        "engine_networks": wanted.networks,
        "engine_api_key_env": wanted.key_variable,
        "key_source": KeySource.EXACT if wanted.exact else KeySource.APPROXIMATE,
    }
    return create_pool(
        wanted.pool_slug,
        wanted.model,
        region,
        wanted.model,
        usual_policy(actor=actor),
        actor=actor,
        why=_why(wanted),
        **{name: value for name, value in fields.items() if value},
    )


def _allowed(pool: Pool, wanted: EngineConnection, actor: Actor) -> Pool:
    changes = {"engine_networks": wanted.networks} if wanted.networks else {}
    if wanted.key_variable:
        changes["engine_api_key_env"] = wanted.key_variable
    return change_pool(pool, changes, actor=actor, why=_why(wanted)) if changes else pool


def _why(wanted: EngineConnection) -> str:
    return f"Allowed {', '.join(wanted.address.addresses)} for {wanted.address.url}" if wanted.networks else WHY


def _networks_with(address: CheckedUrl, pool: Pool | None) -> str:
    """Return the pool's engine networks extended by the address; empty if they already allow it."""
    if is_allowed(address, pool):
        return ""
    known = engine_url_rules(pool).networks
    merged: list[str] = []
    for version in (4, 6):
        nets: list[Any] = [item for item in known if item.version == version]
        nets += [ip_network(item) for item in address.addresses if ip_address(item).version == version]
        merged += map(str, collapse_addresses(nets))
    return ", ".join(merged)


def _engine_name(url: str, pool: Pool | None) -> str:
    name = name_of_url(url)
    taken = set(pool.engines.values_list("name", flat=True)) if pool else set()
    return next(item for item in (name, *(f"{name[:60]}-{n}" for n in range(2, 1000))) if item not in taken)


def _slug(model: str) -> str:
    """Return a slug of the model's name, without the organization."""
    return re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].lower()).strip("-")[:60] or "pool"


def _free_slug(slug: str) -> str:
    taken = set(Pool.objects.filter(slug__startswith=slug).values_list("slug", flat=True))
    return next(candidate for n in numbers(1) if (candidate := slug if n == 1 else f"{slug}-{n}") not in taken)


def _listed(names: Any) -> str:
    return some_names(list(names), 5)


def start_line(facts: ConnectedEngineFacts, flag: str) -> str:
    """Return a start command that ends with the flag, built from the engine's facts. Unreported options are omitted."""
    sglang = facts.product == SGLANG
    program = "python -m sglang.launch_server --model-path" if sglang else "vllm serve"
    names = " ".join(map(quote, facts.names[:1] if sglang else facts.names))
    words = [program, quote(facts.weights), f"--served-model-name {names}", f"--port {urlsplit(facts.url).port}"]
    if facts.context_tokens:
        words.append(f"{'--context-length' if sglang else '--max-model-len'} {facts.context_tokens}")
    block_flag = flag.startswith(block_size_flag(0, sglang=sglang)[:-1])
    if facts.block_tokens and not block_flag:
        words.append(block_size_flag(facts.block_tokens, sglang=sglang))
    words.append("--enable-cache-report --enable-metrics" if sglang else "--enable-prompt-tokens-details")
    return " ".join([*words, flag])
