"""Judges each logged decision by the regret that Headway's own decisions are judged by."""

from __future__ import annotations

from controlplane.request_log.hindsight import Hindsight
from controlplane.router_audit.audited_fleet import AuditedFleet
from controlplane.router_audit.rebuild import Assumptions, RebuiltRun
from gateway.contracts.regret import Regret
from gateway.contracts.stored_decision import StoredDecision
from planning.router_audit.audit_summary import BUSY, CACHE, EVICTED, GROWTH, AuditedDecision
from routing.cost.cost_model import PrefillCost
from routing.policy.policy_document import RoutingPolicy
from routing.values.decision import Candidate, Choice, Decision
from simulator.fleet.request_record import RequestRecord


def judged_decisions(
    fleet: AuditedFleet, run: RebuiltRun, assumed: Assumptions, *, by_log: bool = True
) -> list[AuditedDecision]:
    """Return the decisions that have an outcome, in order of arrival.

    With `by_log`, logged times to first token and cached tokens are the outcome, where the log has them; otherwise the
    simulated ones are.
    """
    hindsight, policy = Hindsight(), assumed.policy()
    ended = [(index, record) for index, record in enumerate(run.records) if record.first_token_s is not None]
    judged: dict[int, AuditedDecision] = {}
    # In the order in which their outcomes became known, as in the request log.
    for index, record in sorted(ended, key=lambda item: (item[1].first_token_s or 0.0, item[0])):
        stored = _stored(fleet, index, record, run.notes.choices[record.request.request_id], policy, by_log)
        regret = hindsight.regret_of(stored)
        default = run.notes.defaults.get(record.request.request_id)
        judged[index] = _judged(fleet, index, stored, regret, default)
    return [judged[index] for index in sorted(judged)]


def _stored(
    fleet: AuditedFleet, index: int, record: RequestRecord, choice: Choice, policy: RoutingPolicy, by_log: bool
) -> StoredDecision:
    """Return the record that the request log would have of this decision."""
    request, logged = record.request, fleet.requests[index]
    ttft_s = logged.ttft_s if by_log and logged.ttft_s is not None else record.ttft_s
    cached = logged.cached_tokens if by_log and logged.cached_tokens is not None else record.hit_tokens
    return StoredDecision(
        arrived_at=request.arrived_s, first_token_after_s=ttft_s, finished_after_s=None, outcome="completed",
        prompt_tokens=request.prompt_tokens, output_tokens=record.output_tokens,
        cached_tokens=None if cached is None else min(cached, request.prompt_tokens),
        decision=Decision.of(request, choice, request.arrived_s, "", 1, policy, 0),
        attempts=(choice.candidates[0].engine_id,), cost=PrefillCost.of(policy.prefill_cost),
        ttft_slo_s=request.ttft_slo_s, engines=len(fleet.names), blocks=(), head=(), priority=0, late=False,
        policy_version=0, pool="", session="", tenant="", agent="", workflow="", origin="", region="", served_model="",
        tenant_id="", key_source="",
    )  # fmt: skip


def _judged(
    fleet: AuditedFleet, index: int, stored: StoredDecision, regret: Regret | None, default: Candidate | None
) -> AuditedDecision:
    chosen, *others = stored.decision.candidates
    better = next((item for item in others if regret is not None and item.engine_id == regret.best_engine_id), chosen)
    ttft_s = better_s = stored.first_token_after_s or 0.0
    parts: dict[str, float] = {}
    if regret is not None:
        # No engine answers before it has computed the prompt, however much sooner than estimated others were.
        better_s = max(regret.best_ttft_s, better.compute_s)
        left = max(0.0, ttft_s - better_s) / regret.seconds if regret.seconds else 0.0
        parts = {cause: seconds * min(1.0, left) for cause, seconds in _parts(regret, chosen, better).items()}
    return AuditedDecision(
        request_id=fleet.requests[index].request_id,
        at_s=stored.arrived_at,
        prompt_tokens=stored.prompt_tokens,
        engine=fleet.names[chosen.engine_id],
        hit_tokens=stored.cached_tokens or 0,
        ttft_s=ttft_s,
        regret_s=sum(parts.values()),
        parts=parts,
        better_engine=fleet.names[better.engine_id],
        better_ttft_s=better_s,
        better_hit_tokens=better.hit_tokens,
        default_engine="" if default is None else fleet.names[default.engine_id],
    )


def _parts(regret: Regret, chosen: Candidate, better: Candidate) -> dict[str, float]:
    """Return the seconds by cause. What was known at the decision is split into prefill and wait."""
    prefill_s, wait_s = max(0.0, chosen.compute_s - better.compute_s), max(0.0, chosen.wait_s - better.wait_s)
    cache_s = regret.trade_s * prefill_s / (prefill_s + wait_s) if regret.trade_s > 0 else 0.0
    growth_s = regret.load_s + regret.stale_view_s + regret.queue_order_s
    return {CACHE: cache_s, BUSY: regret.trade_s - cache_s, GROWTH: growth_s, EVICTED: regret.wrong_index_s}
