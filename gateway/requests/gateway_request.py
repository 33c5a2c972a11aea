"""A request as it arrived at this gateway: in the core's terms, with facts that only the gateway knows.

Its objectives are, in order of precedence: its own, its SLO class's, its API key's class's, and the policy's.
"""

from __future__ import annotations

from math import inf

from msgspec.structs import replace

from gateway.contracts.key_source import MEDIA, NONE
from gateway.contracts.snapshot import PoolEntry
from gateway.contracts.stored_decision import ServiceStory
from gateway.peers.regions.work_lease import HeldLease
from gateway.requests.prompt_keys import KeyedPrompt, has_block_keys
from gateway.requests.rejections import prompt_too_long
from gateway.server.http.openai_error import ApiError
from routing.policy.admission_document import SloClass
from routing.policy.policy_document import RoutingPolicy
from routing.values.hop import Hop
from routing.values.inference_request import InferenceRequest

_NO_CLASS = SloClass()


class GatewayRequest(InferenceRequest, frozen=True, gc=False):
    """The core's request with the fields of its record. Before its prompt is read, it has no keys and no length."""

    key_source: str = NONE
    """How its keys were made, as in KeyedPrompt."""
    salted: bool = False
    """Whether the engine stores the prompt's blocks under a cache salt."""
    tracked: bool = True
    """Whether a caller will report its end."""
    proxied: bool = False
    """Whether this gateway forwards it."""
    witness: str = ""
    """The tenant whose requests and reports alone cannot judge an engine; empty for an operator's key or a sole tenant.
    """
    comparable: bool = True
    """Whether its reported hits can be compared with the engine's index."""
    agent: str = ""
    """The calling agent and its workflow; empty if the request names none."""
    workflow_id: str = ""
    hop: Hop | None = None
    """The hop from the region of first contact, or to a pool of another region."""
    client_request_id: str = ""
    """The client's X-Request-Id. It is no id here, because clients can choose equal ones."""
    lease: HeldLease | None = None
    """The lease under which another region's gateway has forwarded it."""
    asked_model: str = ""
    """The requested alias or adapter, which restricts the request to engines that serve it. Empty: the served model."""
    service: ServiceStory | None = None
    spare: bool = False
    """Whether another pool or a provider of its service can take it, so that a pool's rejection is not its end."""

    @property
    def reporter(self) -> str:
        """Return the tenant if its report is the only source of the request's facts, else an empty string."""
        return "" if self.proxied else self.witness


def gateway_request(
    entry: PoolEntry,
    keyed: KeyedPrompt | None,  # None: its prompt is not read yet
    request_id: str,
    tenant_id: str,
    arrived_s: float,
    ttft_slo_s: float | None = None,
    max_output_tokens: int = 0,
    session_id: str = "",
    priority: int | None = None,
    tpot_slo_s: float | None = None,
    slo_class: str = "",
    key_class: str = "",  # its API key's
    tracked: bool = True,
    proxied: bool = False,
    witness: str = "",
    comparable: bool = True,
    agent: str = "",
    workflow_id: str = "",
    sequences: int = 1,
    hop: Hop | None = None,
    client_request_id: str = "",
    model: str = "",  # the name that it asks for
    adapter: str = "",
    lease: HeldLease | None = None,
) -> GatewayRequest:
    """Return a request in this pool's terms; raise ApiError 400 for a too long prompt or an unknown class.

    `keyed` None: its prompt is not read yet. `key_class` is its API key's class; `adapter` is the meaning of the
    model's name.
    """
    _check_length(entry, keyed)
    slo_class = slo_class or (key_class if key_class in entry.policy.slo_classes else "")
    named = _named(slo_class, entry.policy) if slo_class else _NO_CLASS
    return GatewayRequest(  # by position, in the order of the fields: each decision runs this code
        request_id,
        () if keyed is None else keyed.keys,
        0 if keyed is None else keyed.prompt_tokens,
        entry.block_tokens,
        arrived_s,
        ttft_slo_s or named.ttft_slo_s or entry.policy.ttft_slo_s,
        max_output_tokens,
        tenant_id,
        session_id,
        named.priority if priority is None else priority,
        tpot_slo_s or named.tpot_slo_s or entry.policy.tpot_slo_s,
        arrived_s + named.deadline_s if named.deadline_s else inf,
        slo_class,
        (),
        sequences,
        keyed is not None and _may_load(proxied, sequences, keyed),
        adapter,
        keyed is not None and keyed.source == MEDIA,
        keyed is not None and keyed.salted and _is_proof(comparable, tracked, "" if proxied else witness),
        hop is not None or model not in ("", entry.served_model),
        NONE if keyed is None else keyed.source,
        keyed is not None and keyed.salted,
        tracked, proxied, witness, comparable, agent, workflow_id, hop, client_request_id, lease,
        "" if model == entry.served_model else model,
    )  # fmt: skip


def with_prompt(entry: PoolEntry, request: GatewayRequest, keyed: KeyedPrompt) -> GatewayRequest:
    """Return the request with its prompt; raise ApiError 400 for a prompt over the limit."""
    _check_length(entry, keyed)
    return replace(
        request,
        keys=keyed.keys,
        prompt_tokens=keyed.prompt_tokens,
        may_load=_may_load(request.proxied, request.sequences, keyed),
        guessed=keyed.source == MEDIA,
        key_source=keyed.source,
        salted=keyed.salted,
        proves_salts=keyed.salted and _is_proof(request.comparable, request.tracked, request.reporter),
    )


def _check_length(entry: PoolEntry, keyed: KeyedPrompt | None) -> None:
    if keyed is None:
        return
    alone = keyed.prompt_tokens - keyed.further_tokens
    if alone > entry.max_prompt_tokens:
        raise prompt_too_long(alone, entry.max_prompt_tokens)


def _is_proof(comparable: bool, tracked: bool, reporter: str) -> bool:
    """Return whether the request proves what its engine's events lack. A tenant's report is no proof."""
    return comparable and tracked and not reporter


def _may_load(proxied: bool, sequences: int, keyed: KeyedPrompt) -> bool:
    return proxied and sequences > 0 and has_block_keys(keyed)


def _named(name: str, policy: RoutingPolicy) -> SloClass:
    slo_class = policy.slo_classes.get(name)
    if slo_class is None:
        known = ", ".join(sorted(policy.slo_classes))
        remedy = f"this pool has {known}" if known else "this pool has none"
        raise ApiError(400, f"This SLO class is unknown; {remedy}.", "unknown_slo_class", param="slo_class")
    return slo_class
