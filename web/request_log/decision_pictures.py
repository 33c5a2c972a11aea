"""The charts of one decision: positions in percent of width and height, drawn as SVG by templates."""

from __future__ import annotations

from typing import Any

from controlplane.platform.format import duration, plain, whole
from controlplane.request_log.decision_story.advice import CAUSE_WORDS
from controlplane.request_log.decision_story.advisory_words import advisory_fact
from controlplane.request_log.decision_story.before_words import WAIT, before_parts, failure_words
from controlplane.request_log.decision_story.certainty import Firmness, beta_of, fixed_s, name_of
from controlplane.request_log.decision_story.instead import regret_of, spared_s
from controlplane.request_log.decision_story.load_words import load_fact, own_load
from controlplane.request_log.decision_story.service_words import service_facts
from controlplane.request_log.hindsight import prefill_s
from gateway.contracts.regret import ATTEMPT, GATEWAY, SLOW_GATEWAY_S, TOKENIZER
from gateway.contracts.stored_decision import DOOR_NAMES, StoredDecision
from routing.values import reasons
from routing.values.decision import ALONE, Candidate
from web.live.engine_card import DECODE_REASONS
from web.shell.chart import bars, place, ticks

MAX_CELLS = 48
_SLO_WITHIN = 2.5
"""The objective is drawn only up to this multiple of the time to first token."""
NOTABLE_QUEUE_S, NOTABLE_QUEUE = 0.1, 0.2
"""Seconds, and share of an engine's time, from which time above the modeled prefill counts as its queue."""
_BEFORE_TERMS = {GATEWAY: "before", TOKENIZER: "tokenizer", ATTEMPT: "attempt", WAIT: "before"}
_NAMES_APART = 9.0
"""Minimum distance between adjacent names, in percent of the height."""


def timeline(stored: StoredDecision) -> dict[str, Any] | None:
    """Return the estimated, actual, and best alternative timeline of the request, from its arrival."""
    decision, ttft_s, regret = stored.decision, stored.first_token_after_s, regret_of(stored)
    if not decision.candidates or ttft_s is None:
        return None
    chosen = decision.candidates[0]
    before_s = stored.decided_after_s
    estimate_s = before_s + chosen.wait_s + chosen.compute_s
    best_id = regret.best_engine_id if regret is not None and spared_s(stored) else ""
    best = next((item for item in decision.candidates[1:] if item.engine_id == best_id), None)
    best_s = regret.best_ttft_s if regret is not None and best is not None else 0.0
    # An objective far beyond would squeeze everything else into a corner.
    slo_s = stored.ttft_slo_s if stored.ttft_slo_s <= _SLO_WITHIN * ttft_s else 0.0
    end_s = 1.06 * max(estimate_s, ttft_s, best_s, slo_s, 0.001)
    dispatched_s = min(max(before_s, decision.queued_s), ttft_s)
    before_s = min(before_s, dispatched_s)
    before = before_parts(stored)
    shrunk = before_s / stored.decided_after_s if stored.decided_after_s else 0.0
    parts = [
        *((_BEFORE_TERMS[part.kind], part.seconds * shrunk) for part in before),
        ("queue", dispatched_s - before_s),
        *_on_engines(stored, dispatched_s, ttft_s),
    ]
    instead = []
    if best is not None:
        # Hindsight removes the time of admission, and nothing else before the decision.
        first_s = min(best_s, regret.lost_s if regret is not None and regret.admission_s else before_s)
        queue_s = max(0.0, best_s - first_s - best.compute_s)
        instead = bars([("before", first_s), ("queue", queue_s), ("prefill", best.compute_s)], end_s)
    return {
        "estimated": bars(
            [("before", before_s), ("queue", chosen.wait_s), *_estimated(stored, chosen)], end_s, worded=True
        ),
        "estimated_s": duration(estimate_s),
        "actual": bars(parts, end_s, worded=True),
        "before": [
            {"term": _BEFORE_TERMS[part.kind], "words": part.words, "took": duration(part.seconds)}
            for part in before
            if part.seconds >= SLOW_GATEWAY_S
        ],
        "engine_queue": any(term == "engine" and seconds > 0 for term, seconds in parts),
        "actual_s": duration(ttft_s),
        "instead": instead,
        "instead_name": name_of(stored, best.engine_id) if best is not None else "",
        "instead_s": duration(best_s),
        "instead_end": place(100 * best_s / end_s),
        "ticks": [(place(100 * tick / end_s), duration(tick) if tick else "0") for tick in ticks(end_s)],
        "dispatched": place(100 * dispatched_s / end_s) if dispatched_s / end_s > 0.02 else "",
        "first": place(100 * ttft_s / end_s),
        "first_near_end": ttft_s / end_s > 0.8,
        "slo": place(100 * stored.ttft_slo_s / end_s) if stored.ttft_slo_s <= end_s else "",
        "slo_words": f"SLO {duration(stored.ttft_slo_s)}",
    }


def _on_engines(stored: StoredDecision, dispatched_s: float, ttft_s: float) -> list[tuple[str, float]]:
    """Return the phases between dispatch and first token.

    Loads and the hand-over to a decode engine are measured. Of the rest, the cost model's time for the tokens that the
    engine had to compute is prefill, and what exceeds it was spent in the engine's own queue.
    """
    handed_s = stored.handed_over_after_s if stored.decision.pair is not None else None
    transfer_s = min(ttft_s - dispatched_s, max(0.0, ttft_s - handed_s)) if handed_s is not None else 0.0
    computed_s = ttft_s - dispatched_s - transfer_s
    loaded_s = min(computed_s, stored.load.seconds) if stored.load is not None else 0.0
    rest_s = computed_s - loaded_s
    queue_s = max(0.0, rest_s - prefill_s(stored)) if stored.cost is not None else 0.0
    if queue_s < max(NOTABLE_QUEUE_S, NOTABLE_QUEUE * rest_s):
        queue_s = 0.0
    return [("transfer", loaded_s), ("engine", queue_s), ("prefill", rest_s - queue_s), ("transfer", transfer_s)]


def _estimated(stored: StoredDecision, chosen: Candidate) -> list[tuple[str, float]]:
    """Return the load time (from a node and from the engine's own tiers) and prefill time that the decision assumed."""
    fetch = stored.decision.fetch
    load_s = (fetch.seconds if fetch is not None and fetch.node else 0.0) + _own_s(chosen)
    load_s = min(load_s, chosen.compute_s)
    return [("transfer", load_s), ("prefill", chosen.compute_s - load_s)]


def candidates(stored: StoredDecision) -> list[dict[str, Any]]:
    """Return the candidates with stacked cost terms, as shares of the most expensive candidate."""
    decision, beta = stored.decision, beta_of(stored)
    known = {item.engine_id: item for item in stored.known}
    dearest = max((_shown_cost(candidate, beta) for candidate in decision.candidates), default=0.0) or 1.0
    rows = []
    for number, option in enumerate(decision.candidates):
        then = known.get(option.engine_id)
        weight, own_s = beta or 1.0, min(_own_s(option), option.compute_s)
        terms = [
            ("queue", option.wait_s),
            ("transfer", weight * own_s),
            ("prefill", weight * (option.compute_s - own_s)),
            ("decode", option.sharing_s),
        ]
        rows.append(
            {
                "name": name_of(stored, option.engine_id),
                "engine_id": option.engine_id,
                "chosen": number == 0 and bool(decision.engine_id),
                "note": _note(stored, option, number),
                "hit": whole(option.hit_tokens),
                "hit_share": place(100 * option.hit_tokens / max(1, decision.prompt_tokens)),
                "wait": duration(option.wait_s),
                "prefill": duration(option.compute_s),
                "sharing": duration(option.sharing_s),
                "sharing_words": _sharing_words(option),
                "bars": bars(terms, dearest * 1.02),
                "cost": plain(option.cost),
                "trust": then.trust if then else "",
                "age": duration(then.report_age_s if then else None),
            }
        )
    return rows


def _own_s(candidate: Candidate) -> float:
    return candidate.loading.seconds if candidate.loading is not None else 0.0


def _shown_cost(candidate: Candidate, beta: float | None) -> float:
    return fixed_s(candidate) + (beta or 1.0) * candidate.compute_s


def _sharing_words(candidate: Candidate) -> str:
    """Return the cost parts that come from other requests on the same engine."""
    parts = (
        ("longer decode steps", candidate.decode_s),
        ("late tokens", candidate.late_s),
        ("wait for KV memory", candidate.memory_s),
    )
    return ", ".join(f"{words} {duration(seconds)}" for words, seconds in parts if seconds >= 0.0005)


def _note(stored: StoredDecision, candidate: Candidate, rank: int) -> str:
    everyone = stored.decision.candidates
    notes = []
    if candidate.hit_tokens and candidate.hit_tokens == max(other.hit_tokens for other in everyone):
        notes.append("longest match")
    elif candidate.hit_tokens:
        notes.append("partial match")
    if loads := own_load(candidate):
        notes.append(loads)
    if candidate.wait_s == min(other.wait_s for other in everyone):
        notes.append("shortest wait")
    if (
        rank
        and (regret := regret_of(stored)) is not None
        and spared_s(stored)
        and regret.best_engine_id == candidate.engine_id
    ):
        notes.append("best in hindsight")
    words = ", ".join(notes)
    return words[:1].upper() + words[1:]


def firm_lines(stored: StoredDecision, firm: Firmness) -> dict[str, Any]:
    """Return the candidates' costs as lines over β, from 0 to beyond the decision's β and the crossing."""
    most = ticks(1.75 * max(firm.beta, min(firm.beta_at or 0.0, 4 * firm.beta)))[-1]
    top = max(fixed_s(candidate) + most * candidate.compute_s for candidate in stored.decision.candidates) * 1.04 or 1.0

    def high(cost: float) -> str:
        return place(100 - 100 * cost / top)

    chosen = stored.decision.candidates[0]
    # Where names would overlap, the chosen one's is written, then the rival's.
    ranked = sorted(stored.decision.candidates[1:], key=lambda candidate: candidate.engine_id != firm.rival)
    lines: list[dict[str, str]] = []
    named: list[float] = []
    for number, item in enumerate((chosen, *ranked)):
        end = fixed_s(item) + most * item.compute_s
        free = all(abs(end - other) > top * _NAMES_APART / 100 for other in named)
        named += [end] if free else []
        lines.append(
            {
                "name": name_of(stored, item.engine_id) if free else "",
                "kind": "chosen" if number == 0 else "rival" if item.engine_id == firm.rival else "other",
                "begin": high(fixed_s(item)),
                "end": high(end),
            }
        )
    at = firm.beta_at if firm.beta_at is not None and firm.beta_at <= most else None
    return {
        "lines": lines[::-1],
        "beta": place(100 * firm.beta / most),
        "beta_words": plain(firm.beta),
        "beta_high": high(fixed_s(chosen) + firm.beta * chosen.compute_s),
        "crossing": place(100 * at / most) if at is not None else "",
        "crossing_high": high(fixed_s(chosen) + at * chosen.compute_s) if at is not None else "",
        "crossing_words": plain(at) if at is not None else "",
        "ticks": [(place(100 * tick / most), plain(tick)) for tick in ticks(most)],
        "costs": [(high(tick), plain(tick)) for tick in ticks(top)],
    }


def regret_rows(stored: StoredDecision) -> list[dict[str, Any]]:
    """Return the causes of regret with their parts; the largest has full width."""
    regret = regret_of(stored)
    if regret is None:
        return []
    total = regret.seconds or 1.0
    return [
        {
            "words": CAUSE_WORDS[cause],
            "value": duration(part),
            "some": part >= 0.0005,
            "width": place(100 * part / total),
        }
        for cause, part in regret.parts.items()
    ]


def block_cells(stored: StoredDecision) -> list[str]:
    """Return the prompt's blocks as cells, several blocks per cell if there are many: found, missing, or none.

    If the engine reported nothing, predicted blocks are marked as believed.
    """
    prompt = stored.decision.prompt_tokens
    blocks = max(1, prompt // max(1, stored.block_tokens))
    cells = min(MAX_CELLS, blocks)
    reported, unconfirmed = stored.cached_tokens or 0, "believed" if stored.cached_tokens is None else "missing"
    kinds = []
    for number in range(cells):
        middle = (number + 0.5) * prompt / cells
        kinds.append("found" if middle <= reported else unconfirmed if middle <= stored.believed_tokens else "none")
    return kinds


def inputs(stored: StoredDecision) -> list[tuple[str, str, str]]:
    """Return the inputs of the decision as (name, value, age)."""
    first = stored.known[0] if stored.known else None
    if first is None:
        return []
    chosen = stored.decision.candidates[0]
    name = first.name or first.engine_id
    index_age = duration(first.index_age_s) if first.index_age_s is not None else "as sent"
    snapshot = f"v{stored.snapshot_version}" if stored.snapshot_version else "—"
    return [
        (f"Wait for {name}", f"{duration(chosen.wait_s)}, own ledger", duration(0.0)),
        (f"Report of {name}", "last received", duration(first.report_age_s)),
        ("Prefix index", first.trust or "—", index_age),
        ("Topology, policy", f"{snapshot}, v{stored.decision.policy_version}", duration(stored.snapshot_age_s)),
    ]


def facts(stored: StoredDecision) -> list[tuple[str, str]]:
    """Return the facts of the request itself."""
    decision = stored.decision
    output = f", {whole(stored.output_tokens)} tok" if stored.output_tokens is not None else ""
    rows = [
        ("Prompt, output", f"{whole(decision.prompt_tokens)} tok{output}" if decision.prompt_tokens else "not read"),
        ("Deadline", duration(stored.ttft_slo_s)),
        ("Placement, order", f"{decision.placement}, {decision.order}"),
        ("Key source", stored.key_source),
        ("Migrated", "yes" if decision.migrated_s else "no"),
    ]
    named = (
        *service_facts(stored.service),
        ("Model asked for", stored.asked_model),
        ("Came by", DOOR_NAMES.get(stored.door, "")),
        ("Agent", stored.agent),
        ("X-Request-Id", stored.client_request_id),
    )
    rows += [item for item in named if item[1]]
    if decision.decided_by:
        rows.append(("Decided by", "its gateway alone" if decision.decided_by == ALONE else decision.decided_by))
    if decision.arm:
        rows.append(("Version group", f"{decision.arm}, v{decision.policy_version}"))
    if stored.slo_class or stored.priority:
        rows.append(("Class, priority", f"{stored.slo_class or 'none'}, {stored.priority}"))
    if decision.queue_reason:
        rows.append(("Dispatched because", reasons.words(decision.queue_reason)))
    if decision.pair is not None:
        why = DECODE_REASONS.get(decision.pair.reason, "")
        on = stored.decode_engine_name or decision.pair.engine_id
        rows.append(("Decode engine", f"{on}, {why}" if why else on))
    rows.append(("Advisory", advisory_fact(stored)))
    if loaded := load_fact(stored):
        rows.append(("Loaded", loaded))
    rows += [("Earlier attempt", f"{item.name}, {failure_words(item.cause)}") for item in stored.failures]
    if len(stored.attempts) > 1:
        names = (name_of(stored, engine_id) for engine_id in stored.attempts)
        rows.append(("Attempts", f"{len(stored.attempts)}, on {', '.join(names)}"))
    if stored.finished_after_s is not None:
        rows.append(("Outcome", f"{stored.outcome}, {duration(stored.finished_after_s)}{_pace(stored)}"))
    return rows


def _pace(stored: StoredDecision) -> str:
    output, first_s, end_s = stored.output_tokens, stored.first_token_after_s, stored.finished_after_s
    if output is None or output < 2 or first_s is None or end_s is None:
        return ""
    return f", {1000 * (end_s - first_s) / (output - 1):.0f}\u202fms/tok"
