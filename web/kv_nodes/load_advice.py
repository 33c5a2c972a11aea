"""Whether loading KV over the available links is faster than computing it (Mooncake §2.2, eq. 2).

A load of p tokens is faster if the link's bandwidth B > bytes(p) / (seconds(p) − seconds with all p tokens cached). The
paper uses p = 8,192; because of attention, the condition is weaker for longer prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from controlplane.fleet.learned_costs import fitted_of
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.learned_cost import LearnedCost
from controlplane.fleet.models.pool import Pool
from controlplane.policies import upgrade
from routing.cost.cost_model import PrefillCost
from web.kv_nodes.node_rows import NodeRow

TOKENS = 8192


def load_advice(rows: Sequence[NodeRow]) -> list[dict[str, Any]]:
    """Return the advice for each pool whose engines have nodes, by pool name."""
    homes: dict[int, set[str]] = {}
    for pool_id, node in Engine.objects.exclude(kv_node="").values_list("pool_id", "kv_node"):
        homes.setdefault(pool_id, set()).add(node)
    by_name = {row.name: row for row in rows if row.live and row.slot_bytes}
    pools = Pool.objects.filter(pk__in=homes).select_related("policy__live_version").order_by("name")
    learned: dict[int, list[LearnedCost]] = {}
    for learned_cost in LearnedCost.objects.filter(pool__in=homes).order_by("kind"):
        learned.setdefault(learned_cost.pool_id, []).append(learned_cost)
    rows_by_pool = (
        _advice(
            pool,
            _cost(pool, learned.get(pool.pk, ())),
            [by_name[name] for name in sorted(homes[pool.pk]) if name in by_name],
        )
        for pool in pools
    )
    return [item for item in rows_by_pool if item is not None]


def least_rate(cost: PrefillCost, bytes_per_token: float, tokens: int = TOKENS) -> float:
    """Return the bytes per second above which loading this many tokens is faster than computing them."""
    saved_s = cost.seconds(tokens, 0) - cost.seconds(tokens, tokens)
    return tokens * bytes_per_token / saved_s if saved_s > 0 else float("inf")


def _advice(pool: Pool, cost: PrefillCost | None, nodes: Sequence[NodeRow]) -> dict[str, Any] | None:
    if cost is None or not nodes:
        return None
    bytes_per_token = max(row.slot_bytes for row in nodes) / pool.block_tokens
    least = least_rate(cost, bytes_per_token)
    rates = [link.bytes_per_s for row in nodes for link in row.report.links if link.bytes_per_s > 0]
    shape, verdict = _verdict(sum(rate < least for rate in rates), len(rates))
    return {
        "pool": pool,
        "prefill_s": cost.seconds(TOKENS, 0),
        "size": TOKENS * bytes_per_token,
        "least": least,
        "slowest": min(rates, default=0.0),
        "links": len(rates),
        "shape": shape,
        "verdict": verdict,
    }


def _verdict(slower: int, links: int) -> tuple[str, str]:
    if not links:
        return "unknown", "Not measured yet"
    if not slower:
        return "serving", "Load"
    return "degraded", "Compute" if slower == links else f"Compute on {slower} of {links} links"


def _cost(pool: Pool, learned: Sequence[LearnedCost]) -> PrefillCost | None:
    """Return the prefill cost: the first engine kind's learned cost if it beats the policy's, else the policy's."""
    fitted = fitted_of(learned[0]) if learned else None
    if fitted is not None and fitted.better:
        return fitted.prefill
    version = pool.policy.live_version
    return None if version is None else PrefillCost.of(upgrade.routing_of(version).prefill_cost)
