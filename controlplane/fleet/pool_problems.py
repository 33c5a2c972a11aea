"""Compares a pool's block size with those of its engines. If they differ, the caches' contents are unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controlplane.fleet.models.pool import KeySource, Pool, PoolMode
from controlplane.platform.format import some_names
from controlplane.platform.models.tenant import Tenant
from routing.values.counted import count

_NAMED = 3


@dataclass(frozen=True, slots=True)
class BlockSizeProblem:
    """Engines of one pool whose block size, in tokens, differs from the pool's."""

    pool: Pool
    names: tuple[str, ...]
    reported: int
    alike: bool
    """Whether all engines of the pool that report a block size report this value."""

    @property
    def sentence(self) -> str:
        """Return the problem and its consequence."""
        verb = "has" if len(self.names) == 1 else "have"
        return (
            f"Pool {self.pool.slug} expects blocks of {count(self.pool.block_tokens, 'token')}, but "
            f"{some_names(self.names, _NAMED)} {verb} {self.reported}: their cache contents are unknown."
        )

    @property
    def remedy(self) -> str:
        """Return the fix."""
        if self.alike:
            return f"Set the pool's block size to {self.reported} in its settings."
        return f"Start them with --block-size {self.pool.block_tokens}."


def block_size_problems(
    pools: Iterable[Pool], reported: Iterable[tuple[str, str, int | None]]
) -> list[BlockSizeProblem]:
    """Return the problems of the pools with exact keys. `reported` contains pool slug, engine name, and block size."""
    sizes: dict[str, dict[int, list[str]]] = {}
    for slug, name, tokens in reported:
        if tokens is not None:
            sizes.setdefault(slug, {}).setdefault(tokens, []).append(name)
    exact = {pool.slug: pool for pool in pools if pool.key_source == KeySource.EXACT}
    return [
        BlockSizeProblem(pool, tuple(names), tokens, len(sizes[slug]) == 1)
        for slug, pool in exact.items()
        for tokens, names in sorted(sizes.get(slug, {}).items())
        if tokens != pool.block_tokens
    ]


def role_problems(roles: Mapping[str, int]) -> list[str]:
    """Return one sentence fragment per problem, given the number of engines per role.

    Prefill engines need a decode engine for their output, and decode engines need a prefill engine for their input.
    Without it, they are unused.
    """
    prefill, decode = roles.get("prefill", 0), roles.get("decode", 0)
    if prefill and not decode:
        return [f"{prefill} prefill, but no decode engine: register one, or set them to mixed"]
    if decode and not prefill:
        return [f"{decode} decode, but no prefill engine: register one, or set them to mixed"]
    return []


def with_shared_caches(pools: Iterable[Pool]) -> list[Pool]:
    """Return the pools in which several tenants share caches; empty with a single tenant."""
    if Tenant.objects.count() < 2:
        return []
    return [pool for pool in pools if not pool.isolated and pool.mode == PoolMode.ROUTE]
