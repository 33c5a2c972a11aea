"""One decision explained, as returned by `GET /api/v1/explain/{id}` and shown in the console's drawer."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gateway.contracts.stored_decision import ServiceStory, StoredDecision, StoredLoad
from routing.advisories.advised_sessions import StoredAdvisory
from routing.values import reasons
from routing.values.decision import Decision
from routing.values.hop import Hop


class RequestOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A request's progress. Times in seconds since the request arrived; None: not (yet) known."""

    state: str
    """running, completed, failed, rejected, cancelled or client_error."""
    error: str
    dispatched_after_s: float | None
    handed_over_after_s: float | None
    """When the prefill engine finished, if another engine decodes."""
    first_token_after_s: float | None
    finished_after_s: float | None
    cached_tokens: int | None
    output_tokens: int | None
    on_time: bool | None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """One complete decision. `decided_at` in unix seconds; the chosen candidate first, then the others, best first."""

    decision: Decision
    decided_at: float
    engine_name: str
    reason_words: str
    queue_reason_words: str
    """Why it was dispatched before other queued requests; empty if it did not wait."""
    decode_engine_name: str
    """Name of the decode engine of `decision.pair`; empty if one engine does both."""
    pair_reason_words: str
    key_source: str
    model: str
    """The model as named in the request: the served model, an alias, or a LoRA adapter."""
    ttft_slo_s: float
    attempts: tuple[str, ...]
    outcome: RequestOutcome
    load: StoredLoad | None
    """KV that the engine was instructed to load from a node manager; null: none."""
    advisory: StoredAdvisory | None
    """What was announced, reserved and moved for the request; null: nothing."""
    hop: Hop | None = None
    """The request's hop to or from another region."""
    hop_reason_words: str = ""
    door: str = ""
    """How the request came: proxy, api, nginx, haproxy, envoy, or client; empty: observed."""
    service: ServiceStory | None = None
    """Pools that were tried, and the provider that answered; null: the request named no service."""


def explanation(record: StoredDecision, names: Mapping[str, str]) -> Explanation:
    """Return the record in the API's terms. An engine without a name in `names` is shown by its id."""
    decision, pair = record.decision, record.decision.pair
    ttft_s = record.first_token_after_s
    return Explanation(
        decision=decision,
        decided_at=record.decided_at,
        engine_name=names.get(decision.engine_id, decision.engine_id),
        reason_words=reasons.words(decision.reason),
        queue_reason_words=reasons.words(decision.queue_reason),
        decode_engine_name=names.get(pair.engine_id, pair.engine_id) if pair is not None else "",
        pair_reason_words=reasons.words(pair.reason) if pair is not None else "",
        key_source=record.key_source,
        model=record.service.asked if record.service is not None else record.asked_model or record.served_model,
        ttft_slo_s=record.ttft_slo_s,
        attempts=record.attempts,
        outcome=RequestOutcome(
            state=record.outcome,
            error=record.error,
            dispatched_after_s=record.dispatched_after_s,
            handed_over_after_s=record.handed_over_after_s,
            first_token_after_s=ttft_s,
            finished_after_s=record.finished_after_s,
            cached_tokens=record.cached_tokens,
            output_tokens=record.output_tokens,
            on_time=None if ttft_s is None else ttft_s <= record.ttft_slo_s,
        ),
        load=record.load,
        advisory=record.advisory,
        hop=record.hop,
        hop_reason_words=reasons.words(record.hop.reason) if record.hop is not None else "",
        door=record.door,
        service=record.service,
    )
