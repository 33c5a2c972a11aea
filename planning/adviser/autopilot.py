"""What the autopilot of a pool does next with a proposal: one step from facts, without effects.

A proposal is open until a trial or a person decides. Modes raise what the autopilot may do without a person: nothing,
propose, try on live requests, publish. Whatever a person does first, the autopilot follows.
"""

from __future__ import annotations

import math
import re

import msgspec

OFF, PROPOSE, CANARY, PROMOTE = MODES = ("off", "propose", "canary", "promote")
OPEN, IN_CANARY, PROMOTED = "open", "in_canary", "promoted"
REJECTED, WITHDRAWN, SUPERSEDED, CONTRADICTED, ABSTAINED = (
    "rejected", "withdrawn", "superseded", "contradicted", "abstained",
)  # fmt: skip
UNSETTLED = (OPEN, IN_CANARY)
"""States of which a pool has one proposal at most."""
RUNNING, DONE, FAILED, ABORTED, ENDED = "running", "done", "failed", "aborted", "ended"
BASE, PROPOSED, OTHER = "base", "proposed", "other"
WAIT, START_SHADOW, START_CANARY, PUBLISH, ROLL_BACK = "wait", "start_shadow", "start_canary", "publish", "roll_back"
SETTLE = "settle"
"""The proposal's state changes, and nothing else does."""
LEAST_REQUESTS = 100
"""Minimum number of requests of each side of a holdback, before and after the promotion."""
_DOUBT = 2.58
"""Standard errors beyond no change, as in a two-sided test at 1 %."""
_HOURS = re.compile(r"(\d{1,2})-(\d{1,2})")


class AutopilotFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal and its surroundings."""

    mode: str
    """The lowest mode of the policy's pools: a version goes live in all of them."""
    state: str
    live: str = BASE
    """Which version is live: BASE, PROPOSED, or OTHER."""
    has_draft: bool = True
    within_hours: bool = True
    frozen: bool = False
    shadow: str = ""
    """RUNNING, DONE, FAILED, or empty: none was started."""
    shadow_against: str = ""
    """Why the shadow's figures argue against the proposal."""
    untestable: str = ""
    """Why no canary can compare it."""
    canary: str = ""
    """RUNNING, ABORTED, ENDED, or empty."""
    canary_reason: str = ""
    canary_by_person: bool = False
    """Whether a person ended the canary."""
    canary_waits: str = ""
    """What the running canary lacks before it can be promoted; empty: it held for its time at its last step."""
    lacks_approval: bool = False
    contradiction: str = ""
    """Why the holdback contradicts the promotion."""


class AutopilotStep(msgspec.Struct, frozen=True):
    """What to do, the state of the proposal after it, and the reason as a sentence."""

    action: str
    state: str
    reason: str


def next_step(facts: AutopilotFacts) -> AutopilotStep:
    """Return what the autopilot does now."""
    if facts.state == PROMOTED:
        return _after_promotion(facts)
    overtaken = _overtaken(facts)
    if overtaken is not None:
        return overtaken
    return _in_canary(facts) if facts.state == IN_CANARY else _open(facts)


def _overtaken(facts: AutopilotFacts) -> AutopilotStep | None:
    if facts.live == PROPOSED:
        return AutopilotStep(SETTLE, PROMOTED, "Its version went live.")
    if facts.live == OTHER:
        return AutopilotStep(
            SETTLE, SUPERSEDED, "Another version went live; the prediction was against the former one."
        )
    if not facts.has_draft:
        return AutopilotStep(SETTLE, WITHDRAWN, "Its draft was deleted.")
    if facts.canary == ABORTED:
        state = REJECTED if facts.canary_by_person else CONTRADICTED
        return AutopilotStep(SETTLE, state, f"Its canary was aborted: {facts.canary_reason}")
    return None


def _open(facts: AutopilotFacts) -> AutopilotStep:
    if facts.canary == RUNNING:
        return AutopilotStep(SETTLE, IN_CANARY, "A canary tries it.")
    if facts.shadow == RUNNING:
        return AutopilotStep(WAIT, OPEN, "A shadow compares its choices with the live ones.")
    if facts.shadow_against:
        return AutopilotStep(SETTLE, CONTRADICTED, facts.shadow_against)
    by_hand = "Waits for a person: start a trial, publish it, or reject it." if facts.mode in (OFF, PROPOSE) else ""
    waits = by_hand or facts.untestable or _held(facts)
    if waits:
        return AutopilotStep(WAIT, OPEN, waits)
    if not facts.shadow:
        return AutopilotStep(START_SHADOW, OPEN, "Starts a shadow.")
    return AutopilotStep(START_CANARY, IN_CANARY, "Starts a canary with guardrails.")


def _in_canary(facts: AutopilotFacts) -> AutopilotStep:
    if facts.canary != RUNNING:
        # Not judged: something else changed, such as a pool that fell back to its simple rule.
        return AutopilotStep(SETTLE, OPEN, f"Its canary ended: {facts.canary_reason}")
    if facts.canary_waits:
        return AutopilotStep(WAIT, IN_CANARY, facts.canary_waits)
    if facts.lacks_approval:
        return AutopilotStep(
            WAIT, IN_CANARY, "The canary held for its time. Waits for the approval of a second person."
        )
    if facts.mode != PROMOTE:
        return AutopilotStep(WAIT, IN_CANARY, "The canary held for its time. Waits for a person to promote it.")
    waits = _held(facts)
    if waits:
        return AutopilotStep(WAIT, IN_CANARY, waits)
    return AutopilotStep(PUBLISH, PROMOTED, "The canary held for its time.")


def _after_promotion(facts: AutopilotFacts) -> AutopilotStep:
    if facts.live != PROPOSED or not facts.contradiction:
        return AutopilotStep(WAIT, PROMOTED, "")
    if facts.mode == PROMOTE and not facts.frozen:
        # Not limited to hours: what is worse must not last until the night.
        return AutopilotStep(ROLL_BACK, CONTRADICTED, facts.contradiction)
    return AutopilotStep(SETTLE, CONTRADICTED, f"{facts.contradiction} A person decides about a rollback.")


def _held(facts: AutopilotFacts) -> str:
    """Return why the autopilot changes nothing now."""
    if facts.frozen:
        return "Waits: one of the policy's pools is frozen."
    return "" if facts.within_hours else "Waits for the hours in which the autopilot may change something."


def within_hours(hours: str, hour: int) -> bool:
    """Return whether the UTC hour is within `hours`, such as 22-6; empty hours include all."""
    match = _HOURS.fullmatch(hours)
    if match is None:
        return True
    start, end = (int(part) % 24 for part in match.groups())
    return start == end or (start <= hour < end if start < end else hour >= start or hour < end)


class HoldbackCounts(msgspec.Struct, frozen=True):
    """Requests of the policy and of the simple rule at the same time, and how many missed their objective."""

    policy: int = 0
    policy_late: float = 0.0
    rule: int = 0
    rule_late: float = 0.0

    @property
    def enough(self) -> bool:
        """Whether both sides have enough requests for a verdict."""
        return min(self.policy, self.rule) >= LEAST_REQUESTS

    @property
    def lead(self) -> float:
        """By how much the policy's on-time share is above the rule's, −1..1."""
        return self.rule_late / self.rule - self.policy_late / self.policy

    @property
    def variance(self) -> float:
        """The variance of the lead for independent requests, never 0."""
        sides = ((self.policy_late, self.policy), (self.rule_late, self.rule))
        shares = [((late + 0.5) / (of + 1), of) for late, of in sides]
        return sum(share * (1 - share) / of for share, of in shares)


def lead_change(before: HoldbackCounts, after: HoldbackCounts) -> float | None:
    """Return how the on-time share changed relative to the simple rule, whose traffic changed alike.

    None: there is no holdback, or too few of its requests.
    """
    return after.lead - before.lead if before.enough and after.enough else None


def contradiction(before: HoldbackCounts, after: HoldbackCounts, practical_share: float) -> str:
    """Return why the holdback contradicts a promotion: the lead over the simple rule fell beyond doubt; else empty."""
    change = lead_change(before, after)
    if change is None or change > -practical_share:
        return ""
    if change + _DOUBT * math.sqrt(before.variance + after.variance) >= 0:
        return ""
    return f"Against the holdback, the on-time share fell by {-change * 100:.1f} points since the promotion."
