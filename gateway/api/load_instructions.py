"""Load instructions in answers of the decision API: the caller passes them to the engine's KV connector."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from gateway.api.fleet_visibility import may_see_load
from gateway.requests.caller_facts import KEEPS_BODIES, CallerFacts, DecisionCaller
from gateway.requests.formats.handoff_bodies import TRANSFER
from gateway.requests.prompt_keys import KeyedPrompt, has_block_keys
from kvstore.connector.engine_params import FIELD, LoadInstruction

if TYPE_CHECKING:
    from gateway.pools.pool.live_pool import LivePool

_NONE: Mapping[str, Any] = MappingProxyType({})


def loads_for(pool: LivePool, caller: DecisionCaller, facts: CallerFacts, *, merges: bool, tracked: bool) -> bool:
    """Return whether the engine can load blocks for this caller's request.

    The caller has to pass the instruction on, may know which blocks other tenants have computed, and reports the
    outcome, from which the load's result is inferred.
    """
    return tracked and _passes_on(facts, merges=merges) and _may_see_blocks(pool, caller)


def instruction_of(
    pool: LivePool, caller: DecisionCaller, facts: CallerFacts, keyed: KeyedPrompt, *, merges: bool
) -> LoadInstruction | None:
    """Return the part of the load instruction that is the same for all engines, None if no engine gets one.

    `merges`: the caller changes the request's body. Callers that may not know which blocks others have computed get no
    block keys: their blocks are stored without.
    """
    if not (pool.loads.follows and _passes_on(facts, merges=merges)):
        return None
    keys = keyed.keys if has_block_keys(keyed) and _may_see_blocks(pool, caller) else ()
    order = pool.loads.order_of(keys, caller.key.tenant_id, facts.cache_hint)
    # The client reads the engine's answer, whose report would name nodes.
    return msgspec.structs.replace(order, quiet=True)


def instructed(order: LoadInstruction, others: Mapping[str, Any] = _NONE) -> dict[str, Any]:
    """Return the field of an engine's request body that holds the instruction, and `others`."""
    return {TRANSFER: {**others, FIELD: order}}


def _passes_on(facts: CallerFacts, *, merges: bool) -> bool:
    return merges and facts.door != KEEPS_BODIES


def _may_see_blocks(pool: LivePool, caller: DecisionCaller) -> bool:
    # A trusted proxy shows its clients nothing of the answer.
    return bool(caller.reporting_tenant) or may_see_load(caller.key, pool)
