"""A request in the core's terms, with what it may expect: its own words first, then its SLO class, then the policy."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from gateway.contracts.snapshot import PoolEntry
from gateway.http.openai_error import ApiError
from gateway.requests.prompt_keys import KeyedPrompt, names_blocks
from gateway.requests.rejections import prompt_too_long
from routing.policy.admission_document import SloClass
from routing.policy.policy_document import RoutingPolicy
from routing.values.inference_request import InferenceRequest

if TYPE_CHECKING:
    from gateway.requests.wanted import Wanted

_NO_CLASS = SloClass()


def inference_request(entry: PoolEntry, wanted: Wanted, keyed: KeyedPrompt) -> InferenceRequest:
    """Return the request as this pool takes it; raises ApiError 400 for a prompt over the pool's limit.

    400 too where the request names a class that the pool does not have. An API key's class holds in the pools that
    have it; keys may serve several.
    """
    alone = keyed.prompt_tokens - keyed.further_tokens
    if alone > entry.max_prompt_tokens:
        raise prompt_too_long(alone, entry.max_prompt_tokens)
    policy, name, slo_class = entry.policy, wanted.slo_class, _NO_CLASS
    if name:
        slo_class = _named(name, policy)
    elif wanted.key_class:
        name = wanted.key_class if wanted.key_class in policy.slo_classes else ""
        slo_class = policy.slo_classes.get(wanted.key_class, _NO_CLASS)
    return InferenceRequest(
        wanted.request_id,
        keyed.keys,
        keyed.prompt_tokens,
        entry.block_tokens,
        wanted.arrived_s,
        wanted.ttft_slo_s or slo_class.ttft_slo_s or policy.ttft_slo_s,
        wanted.max_output_tokens,
        wanted.tenant_id,
        wanted.session_id,
        slo_class.priority if wanted.priority is None else wanted.priority,
        wanted.tbt_slo_s or slo_class.tbt_slo_s or policy.tbt_slo_s,
        wanted.arrived_s + slo_class.deadline_s if slo_class.deadline_s else inf,
        name,
        sequences=wanted.sequences,
        may_load=wanted.proxied and wanted.sequences > 0 and names_blocks(keyed),
    )


def _named(name: str, policy: RoutingPolicy) -> SloClass:
    slo_class = policy.slo_classes.get(name)
    if slo_class is None:
        known = ", ".join(sorted(policy.slo_classes))
        remedy = f"this pool has {known}" if known else "this pool has none"
        raise ApiError(400, f"This SLO class is unknown; {remedy}.", "unknown_slo_class", param="slo_class")
    return slo_class
