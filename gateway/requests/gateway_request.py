"""A request as it arrived at this gateway: in the core's terms, with facts that only the gateway knows.

Its objectives are, in order of precedence: its own, its SLO class's, its API key's class's, and the policy's. A class
that the pool lacks is an error only if the request names it in Headway's own terms.
"""

from __future__ import annotations

from math import inf

from msgspec.structs import replace

from gateway.contracts.key_source import MEDIA, NONE
from gateway.contracts.snapshot import ApiKeyEntry, PoolEntry
from gateway.contracts.stored_decision import ServiceStory
from gateway.peers.regions.work_lease import HeldLease
from gateway.requests.caller_facts import NO_FACTS, CallerFacts, allowed_priority
from gateway.requests.prompt_keys import KeyedPrompt, has_block_keys
from gateway.requests.rejections import prompt_too_long
from gateway.requests.tokenizer_calls import Waits
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
    door: str = ""
    """The way by which it came: proxy, api, or the name of an integration (caller_facts.DOORS); empty: observed."""
    parent_session: str = ""
    """The session whose agent started its session."""
    reporting_tenant: str = ""
    """The tenant of the trusted proxy that will report its end on behalf of its client; empty: another caller."""
    key_id: str = ""
    """The API key that it came with."""
    service: ServiceStory | None = None
    spare: bool = False
    """Whether another pool or a provider of its service can take it, so that a pool's rejection is not its end."""
    tokenizers: Waits = ()

    @property
    def reporter(self) -> str:
        """Return the tenant if its report is the only source of the request's facts, else an empty string."""
        return "" if self.proxied or self.reporting_tenant else self.witness


def gateway_request(
    entry: PoolEntry,
    keyed: KeyedPrompt | None,  # None: its prompt is not read yet
    request_id: str,
    caller: ApiKeyEntry,
    arrived_s: float,
    facts: CallerFacts = NO_FACTS,
    max_output_tokens: int = 0,
    sequences: int = 1,
    witness: str = "",
    comparable: bool = True,
    tracked: bool = True,
    door: str = "",
    reporting_tenant: str = "",
    model: str = "",  # the name that it asks for
    adapter: str = "",
    proxied: bool = False,
    hop: Hop | None = None,
    lease: HeldLease | None = None,
    instructs: bool = False,
) -> GatewayRequest:
    """Return a request in this pool's terms; raise ApiError 400 for a too long prompt or an unknown class.

    `keyed` None: its prompt is not read yet. `adapter` is the meaning of the model's name. `instructs`: the caller
    passes load instructions to the engine.
    """
    _check_length(entry, keyed)
    classes, priority = entry.policy.slo_classes, facts.priority
    slo_class = facts.slo_class or next((name for name in (facts.objective, caller.slo_class) if name in classes), "")
    named = _named(slo_class, entry.policy) if slo_class else _NO_CLASS
    return GatewayRequest(  # by position, in the order of the fields: each decision runs this code
        request_id,
        () if keyed is None else keyed.keys,
        0 if keyed is None else keyed.prompt_tokens,
        entry.block_tokens,
        arrived_s,
        facts.ttft_slo_s or named.ttft_slo_s or entry.policy.ttft_slo_s,
        max_output_tokens,
        caller.tenant_id,
        facts.conversation,
        named.priority if priority is None else allowed_priority(caller, priority),
        facts.tpot_slo_s or named.tpot_slo_s or entry.policy.tpot_slo_s,
        arrived_s + named.deadline_s if named.deadline_s else inf,
        slo_class,
        (),
        sequences,
        keyed is not None and _may_load(proxied or instructs, sequences, keyed),
        adapter,
        keyed is not None and keyed.source == MEDIA,
        keyed is not None
        and keyed.salted
        and _is_proof(comparable, tracked, "" if proxied or reporting_tenant else witness),
        hop is not None or model not in ("", entry.served_model),
        NONE if keyed is None else keyed.source,
        keyed is not None and keyed.salted,
        tracked, proxied, witness, comparable, facts.agent, facts.workflow_id, hop, facts.client_request_id, lease,
        "" if model == entry.served_model else model, door, facts.parent_session, reporting_tenant, caller.key_id,
        None, False, () if keyed is None else keyed.tokenizers,
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
        tokenizers=keyed.tokenizers,
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


def _may_load(instructs: bool, sequences: int, keyed: KeyedPrompt) -> bool:
    return instructs and sequences > 0 and has_block_keys(keyed)


def _named(name: str, policy: RoutingPolicy) -> SloClass:
    slo_class = policy.slo_classes.get(name)
    if slo_class is None:
        known = ", ".join(sorted(policy.slo_classes))
        remedy = f"this pool has {known}" if known else "this pool has none"
        raise ApiError(400, f"This SLO class is unknown; {remedy}.", "unknown_slo_class", param="slo_class")
    return slo_class
