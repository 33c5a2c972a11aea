"""Evidence that a canary needs to continue: the dwell time is over, requests are judged, and every guardrail holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec

from controlplane.platform.field_problems import problem
from controlplane.trials.canary.end import CanaryOverError
from controlplane.trials.canary.evaluation import ArmFigures, CanaryEvaluation, stored_evaluation
from controlplane.trials.models.canary import Canary
from planning.documents.guardrail_document import GuardrailDocument
from planning.trials.comparison import FAILED, LATE, TAIL, TTFT
from planning.trials.guardrail_certainty import BROKEN, HOLDS, NOT_YET, GuardrailCertainty, certainty
from routing.values.counted import count
from routing.values.prepared_struct import prepared

FRESH_S = 60.0
"""Maximum age of an evaluation. Evaluations are made every other second."""
GUARD_TITLES = {LATE: "Late requests", FAILED: "Failed requests", TTFT: "Mean TTFT", TAIL: "Slowest tenth"}

_LACKS = {NOT_YET: "not yet known to hold", BROKEN: "broken"}


class Evidence(StrEnum):
    """Treatment of missing evidence."""

    REQUIRED = "required"
    """The call is rejected if evidence is missing."""
    WAIVED = "waived"
    """Missing evidence is waived, with a reason for the audit."""
    JUDGED = "judged"
    """The caller has judged newer figures itself, as the job does."""


class EvidenceMissingError(CanaryOverError):
    """There is not enough evidence about the canary. The message states what is missing."""


@dataclass(frozen=True, slots=True)
class StepEvidence:
    """State of the evidence for a canary's step."""

    dwell_s: float
    """Remaining dwell time of the step in seconds."""
    requests: int
    """Number of missing judged requests in the arm with fewer requests."""
    guardrails: tuple[GuardrailCertainty, ...]
    """Empty: this step has not been evaluated yet."""
    missing: tuple[str, ...]
    """Missing evidence, one sentence each; empty: none is missing."""
    wait_s: float | None
    """Estimated seconds until all guardrails can be judged; None: no estimate."""


def step_evidence(canary: Canary, now: datetime) -> StepEvidence:
    """Return the state of the evidence for the canary's step."""
    limits = msgspec.convert(canary.guardrails, prepared(GuardrailDocument))
    evaluation = evaluation_at_step(canary)
    since_s = (now - canary.step_at).total_seconds()
    dwell_s = max(0.0, canary.min_dwell_s - since_s)
    judged = min(evaluation.base.requests, evaluation.tried.requests) if evaluation else 0
    requests = max(0, limits.min_requests - judged)
    guardrails = known_guardrails(evaluation, limits, canary.step_at) if evaluation else ()
    missing = []
    if dwell_s > 0:
        missing.append(f"This step has lasted {since_s:.0f} s of {canary.min_dwell_s:.0f} s.")
    if requests:
        least = count(limits.min_requests, "request")
        unit = "version" if canary.pool_id is None else "side"
        missing.append(f"{judged} of at least {least} evaluated per {unit}.")
    else:
        missing += [
            f"{GUARD_TITLES[guardrail.guard]}: {_LACKS[guardrail.verdict]}."
            for guardrail in guardrails
            if guardrail.verdict != HOLDS
        ]
    if evaluation and now.timestamp() - evaluation.at > FRESH_S:
        missing.append(f"The last evaluation is {now.timestamp() - evaluation.at:.0f} s old.")
    return StepEvidence(dwell_s, requests, guardrails, tuple(missing), _wait_s(dwell_s, guardrails))


def _wait_s(dwell_s: float, guardrails: Sequence[GuardrailCertainty]) -> float | None:
    waits = [guardrail.wait_s for guardrail in guardrails if guardrail.verdict == NOT_YET]
    known = [wait for wait in waits if wait is not None]
    return max(dwell_s, *known, 0.0) if guardrails and len(known) == len(waits) else None


def evaluation_at_step(canary: Canary) -> CanaryEvaluation | None:
    """Return the last evaluation if it belongs to the canary's current step."""
    evaluation = stored_evaluation(canary.evaluation)
    return evaluation if evaluation and evaluation.at >= canary.step_at.timestamp() else None


def known_guardrails(
    evaluation: CanaryEvaluation, limits: GuardrailDocument, step_at: datetime
) -> tuple[GuardrailCertainty, ...]:
    """Return the certainty of each guardrail in the evaluation."""
    since_s = evaluation.at - step_at.timestamp()
    return tuple(
        certainty(reading, requests=_counted(reading.guard, evaluation), least=limits.min_requests, since_s=since_s)
        for reading in evaluation.readings
    )


def require_evidence(canary: Canary, evidence: Evidence, why: str, now: datetime) -> dict[str, list[str]]:
    """Check the evidence, and return the waived evidence for the audit.

    Raises EvidenceMissingError, and InvalidFieldsError if evidence is waived without a reason.
    """
    missing = () if evidence == Evidence.JUDGED else step_evidence(canary, now).missing
    if not missing:
        return {}
    if evidence == Evidence.REQUIRED:
        raise EvidenceMissingError(" ".join(("Not enough evidence to continue.", *missing)))
    if not why.strip():
        raise problem("why", "Enter the reason for continuing without evidence.")
    return {"without_evidence": list(missing)}


def _counted(guard: str, evaluation: CanaryEvaluation) -> int:
    def count(side: ArmFigures) -> int:
        return side.requests if guard in (LATE, FAILED) else sum(side.ttft.values())

    return min(count(evaluation.base), count(evaluation.tried))
