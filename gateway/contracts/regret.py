"""Regret of a decision: seconds and tokens that another candidate would have saved, split by cause.

Notation: A is the observed time to first token, P the time before the engine was chosen, C the prefill time with the
reported hit, and W = A − P − C the wait. For a candidate i, E_i = wait_i + compute_i is its estimate at the decision,
and d_i the seconds by which waits at that engine exceeded their estimates around that time.

    H_i    = P' + E_i + d_i                 expected time on i; P' = P without admission's part, or L
    total  = max(0, A − H_b) + L            b: the candidate with the least H, other than the chosen candidate c
    L = gateway + tokenizer + attempt       parts of P that no choice of an engine would have saved: the gateway's own
                                            time, waits for engines' tokenizers, and attempts that failed
    A − H_b = admission + trade + growth + index, exactly, with
      admission = P − P'                    deferred by admission before an engine was chosen
      trade     = E_c − E_b                 known at the decision: a longer wait for cached blocks, or the reverse
      growth    = (W − wait_c) − d_b        excess of the wait over its estimate, compared with b's excess
                = queue_order               the part due to later queued requests that were dispatched earlier
                + stale_view | load         the remainder, attributed by the age of the engine's last report
      index     = C − compute_c             blocks that were no longer cached had to be computed

A part can be negative, for example for a good trade that queue growth outweighed. The positive parts then share the
total in proportion, so that parts are never negative and always sum to the total. The split follows the terms of the
cost that placements estimate (DESIGN, routing, stage 3).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

TRADE = "trade"
LOAD = "load"
STALE_VIEW = "stale_view"
WRONG_INDEX = "wrong_index"
QUEUE_ORDER = "queue_order"
ADMISSION = "admission"
GATEWAY = "gateway"
TOKENIZER = "tokenizer"
ATTEMPT = "attempt"
CAUSES = (TRADE, LOAD, STALE_VIEW, WRONG_INDEX, QUEUE_ORDER, ADMISSION, GATEWAY, TOKENIZER, ATTEMPT)

STALE_AFTER_S = 1.0
"""If a wait was estimated from reports older than this, its growth is attributed to a stale view."""
NEGLIGIBLE_S = 0.001
SLOW_GATEWAY_S = 0.1
"""Seconds that a gateway, and an engine's tokenizer, normally need for a prompt. Only more counts as slow."""


class RegretOption(msgspec.Struct, frozen=True, gc=False):
    """One candidate's estimate and its known drift, in seconds and prompt tokens."""

    engine_id: str
    hit_tokens: int
    wait_s: float
    compute_s: float
    drift_s: float = 0.0
    """Seconds by which waits at this engine exceeded their estimates around that time; negative: fell short."""

    @property
    def estimate_s(self) -> float:
        """Return the estimated seconds to the first token."""
        return self.wait_s + self.compute_s


class Course(msgspec.Struct, frozen=True, gc=False):
    """The timeline of one request in seconds. `ttft_s` and `queued_s` start at its arrival."""

    ttft_s: float
    queued_s: float
    """Seconds until it was dispatched to its engine."""
    compute_s: float
    """Prefill with the reported hit, by the cost model at that time."""
    hit_tokens: int
    """Reported tokens, or predicted tokens if the engine reports none."""
    before_s: float = 0.0
    """Seconds until its engine was chosen."""
    deferred: bool = False
    """Whether admission deferred it until then."""
    gateway_s: float = 0.0
    """Part of `before_s` that was the gateway's own."""
    tokenizer_s: float = 0.0
    """Part of `before_s` that was spent on waiting for engines' tokenizers."""
    attempt_s: float = 0.0
    """Part of `before_s` that failed attempts took."""
    overtaken_s: float = 0.0
    """Prefills of queued requests that arrived later and were dispatched to the same engine earlier."""
    view_age_s: float | None = None
    """Age of the chosen engine's last report at the decision; None: there was no report, so the gateway's own ledger
    decided.
    """


class Regret(msgspec.Struct, frozen=True, gc=False):
    """Savings that the best other candidate would have brought; all zero if the chosen one was best."""

    best_engine_id: str
    best_ttft_s: float
    seconds: float
    tokens: int
    """Prompt tokens that the best candidate held and the chosen engine had to compute."""
    trade_s: float = 0.0
    load_s: float = 0.0
    stale_view_s: float = 0.0
    wrong_index_s: float = 0.0
    queue_order_s: float = 0.0
    admission_s: float = 0.0
    gateway_s: float = 0.0
    tokenizer_s: float = 0.0
    attempt_s: float = 0.0

    @property
    def lost_s(self) -> float:
        """Return the seconds that no choice of an engine would have saved."""
        return self.gateway_s + self.tokenizer_s + self.attempt_s

    @property
    def parts(self) -> dict[str, float]:
        """Return the seconds by cause, in the order of CAUSES."""
        return {cause: getattr(self, f"{cause}_s") for cause in CAUSES}

    @property
    def cause(self) -> str:
        """Return the cause of the largest part, empty if there is no regret."""
        if self.seconds < NEGLIGIBLE_S:
            return ""
        parts = self.parts
        return max(CAUSES, key=parts.__getitem__)


def regret(options: Sequence[RegretOption], course: Course, stale_after_s: float = STALE_AFTER_S) -> Regret | None:
    """Return what the best other option, and a faster way to the decision, would have saved.

    None if there was no other option and no time was lost before the decision.

    The first option is the chosen one. All were estimated at one time, `course.before_s` after the arrival.
    """
    lost = {
        "gateway_s": course.gateway_s if course.gateway_s >= SLOW_GATEWAY_S else 0.0,
        "tokenizer_s": course.tokenizer_s if course.tokenizer_s >= SLOW_GATEWAY_S else 0.0,
        "attempt_s": course.attempt_s,
    }
    lost_s, chosen = sum(lost.values()), options[0]
    if len(options) < 2:
        return Regret(chosen.engine_id, course.ttft_s, lost_s, 0, **lost) if lost_s else None
    base_s = lost_s if course.deferred else course.before_s
    best = min(options[1:], key=lambda option: (option.estimate_s + option.drift_s, option.engine_id))
    best_ttft_s = base_s + max(0.0, best.estimate_s + best.drift_s)
    total_s = max(0.0, course.ttft_s - best_ttft_s)
    tokens = max(0, best.hit_tokens - course.hit_tokens)
    if total_s < NEGLIGIBLE_S:
        return Regret(best.engine_id, best_ttft_s, lost_s, 0, **lost)
    raw = _raw_parts(chosen, best, best_ttft_s - base_s - best.estimate_s, course, stale_after_s)
    raw[ADMISSION] = course.before_s - base_s
    positive = {cause: max(0.0, part) for cause, part in raw.items()}
    # Never zero: the raw parts add up to total_s, which is not negligible here.
    share = total_s / sum(positive.values())
    parts = {f"{cause}_s": part * share for cause, part in positive.items()}
    return Regret(best.engine_id, best_ttft_s, total_s + lost_s, tokens, **parts, **lost)


def _raw_parts(
    chosen: RegretOption, best: RegretOption, drift_s: float, course: Course, stale_after_s: float
) -> dict[str, float]:
    """Return the parts before negative parts are offset against positive ones."""
    # A request whose first token came sooner than its modeled prefill was computed faster; it did not wait less.
    compute_s = max(0.0, min(course.compute_s, course.ttft_s - course.queued_s))
    wait_s = course.ttft_s - course.before_s - compute_s
    growth_s = wait_s - chosen.wait_s - drift_s
    order_s = min(max(growth_s, 0.0), course.overtaken_s)
    stale = course.view_age_s is not None and course.view_age_s > stale_after_s
    return {
        TRADE: chosen.estimate_s - best.estimate_s,
        STALE_VIEW if stale else LOAD: growth_s - order_s,
        QUEUE_ORDER: order_s,
        WRONG_INDEX: compute_s - chosen.compute_s,
    }


def rejection_regret(options: Sequence[RegretOption], slack_s: float) -> Regret | None:
    """Return the cost of a rejection: the time that the best engine would have left before the deadline.

    `slack_s` is the time from the decision to the deadline. All of the cost is attributed to admission. It is zero if
    no engine was expected to be on time, and None if no engine was considered.
    """
    if not options:
        return None
    best = min(options, key=lambda option: (option.estimate_s + option.drift_s, option.engine_id))
    expected_s = max(0.0, best.estimate_s + best.drift_s)
    spare_s = max(0.0, slack_s - expected_s)
    if spare_s < NEGLIGIBLE_S:
        return Regret(best.engine_id, expected_s, 0.0, 0)
    return Regret(best.engine_id, expected_s, spare_s, best.hit_tokens, admission_s=spare_s)
