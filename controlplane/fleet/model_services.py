"""Creates, changes, and deletes services, and sums what their providers cost. Admins only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db.models import F

from controlplane.fleet.models.model_service import ModelService, ProviderUsage
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.platform import recorded_change
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError, check_names
from controlplane.platform.recorded_change import InUseError
from controlplane.platform.resource.declared_field import settable_fields
from controlplane.platform.role import Role
from controlplane.platform.roles import require
from gateway.contracts.snapshot import ProviderEntry, ServiceEntry
from gateway.contracts.stored_decision import StoredDecision

_FIELDS = frozenset(settable_fields(ModelService))


def create_service(slug: str, *, actor: Actor, why: str = "", **fields: Any) -> ModelService:
    """Store and publish a new service. Raises NotAllowedError, InvalidFieldsError."""
    require(actor, Role.ADMIN)
    check_names(fields, _FIELDS)
    service = ModelService(slug=slug, **fields)
    _check(service)
    return recorded_change.create(service, "service.create", actor=actor, why=why)


def change_service(
    service: ModelService, changes: Mapping[str, Any], *, actor: Actor, expected: int | None = None, why: str = ""
) -> ModelService:
    """Change and publish a service. Raises NotAllowedError, InvalidFieldsError, StaleRevisionError."""
    require(actor, Role.ADMIN)
    check_names(changes, _FIELDS)
    stored = {name: getattr(service, name) for name in _FIELDS}
    _check(ModelService(pk=service.pk, slug=service.slug, **{**stored, **changes}))
    return recorded_change.change(service, changes, "service.change", actor=actor, expected=expected, why=why)


def delete_service(service: ModelService, *, actor: Actor, expected: int | None = None, why: str = "") -> None:
    """Delete a service. Its names are unknown from then on. Raises NotAllowedError, StaleRevisionError."""
    require(actor, Role.ADMIN)
    recorded_change.delete(service, "service.delete", actor=actor, expected=expected, why=why)


def reject_while_served(*, pool: str = "", region: str = "") -> None:
    """Raise InUseError if a service names this pool or region."""
    using = [
        item.slug
        for item in ModelService.objects.all()
        if pool in item.pools or (region and region == item.provider_region)
    ]
    if using:
        raise InUseError(f"Services use {pool or region}: {', '.join(using[:3])}; change these first.")


def service_entries() -> tuple[ServiceEntry, ...]:
    """Return all services for the snapshot."""
    return tuple(_entry(service) for service in ModelService.objects.all())


def _entry(service: ModelService) -> ServiceEntry:
    provider = ProviderEntry(
        url=service.provider_url,
        model=service.provider_model,
        key_variable=service.provider_key_env,
        region=service.provider_region,
        input_cost=service.input_cost,
        output_cost=service.output_cost,
    )
    return ServiceEntry(
        name=service.slug,
        aliases=tuple(service.aliases),
        pools=tuple(service.pools),
        provider=provider if service.fallback else None,
    )


def _check(service: ModelService) -> None:
    """Raise InvalidFieldsError unless the names are free, the pools exist, and the provider is complete."""
    problems = [FieldProblem("aliases", text) for text in _name_problems(service)]
    known = set(Pool.objects.filter(slug__in=service.pools).values_list("slug", flat=True))
    if not service.pools:
        problems.append(FieldProblem("pools", "Name at least one pool."))
    if unknown := [slug for slug in service.pools if slug not in known]:
        problems.append(FieldProblem("pools", f"Unknown: {', '.join(unknown)}."))
    if len(set(service.pools)) < len(service.pools):
        problems.append(FieldProblem("pools", "A pool appears twice."))
    if service.provider_url and not _is_address(service.provider_url):
        text = "Use https://host/path without a name, query, or fragment; http only for addresses of this host."
        problems.append(FieldProblem("provider_url", text))
    if service.provider_region and not Region.objects.filter(slug=service.provider_region).exists():
        problems.append(FieldProblem("provider_region", "This region is unknown."))
    if service.fallback:
        empty = [name for name in ("provider_url", "provider_model") if not getattr(service, name)]
        problems += [FieldProblem(name, "Required to use the provider.") for name in empty]
    if problems:
        raise InvalidFieldsError(problems)


def _name_problems(service: ModelService) -> Iterable[str]:
    names = Counter((service.slug, *service.aliases))
    yield from (f"{name} appears twice." for name, number in names.items() if number > 1)
    for other in ModelService.objects.exclude(pk=service.pk):
        yield from (f"{name} is a name of {other.slug}." for name in (other.slug, *other.aliases) if name in names)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    plain = not (parts.query or parts.fragment or parts.username or parts.password) and url.isprintable()
    if not (host and plain) or " " in url:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and settings.ALLOW_LOOPBACK_ENGINES and _is_here(host))


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def add_provider_usage(decisions: Iterable[StoredDecision]) -> None:
    """Add the providers' answers among these decisions to their days. Call it in the transaction that stores them."""
    sums: dict[tuple[str, date], list[float]] = {}
    for decision in decisions:
        story = decision.service
        if story is not None and story.status == 200:
            day = datetime.fromtimestamp(decision.arrived_at, UTC).date()
            requests_and_cost = sums.setdefault((story.service[:64], day), [0, 0.0])
            requests_and_cost[0] += 1
            requests_and_cost[1] += story.cost or 0.0
    for (service, day), (requests, cost) in sorted(sums.items()):
        row, _ = ProviderUsage.objects.get_or_create(service=service, day=day)
        changed = {"requests": F("requests") + int(requests), "cost": F("cost") + cost}
        ProviderUsage.objects.filter(pk=row.pk).update(**changed)
