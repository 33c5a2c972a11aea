"""The form that starts a canary: version or pool, shares, automatic advancing, and guardrails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.http import QueryDict

from controlplane.fleet.models.pool import Pool
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError, problem
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.trials.canary.lifecycle import DEFAULT_DWELL_S, DEFAULT_STEPS, course_problems
from controlplane.trials.canary.service_share import service_problem
from planning.documents.guardrail_document import GuardrailDocument
from web.shell.form_field import NUMBER, SELECT, FieldOption, FormField
from web.trials.version_field import drafts_of, version_field, version_of

ADVANCES = (
    FieldOption("by_hand", "Manually"),
    FieldOption("steps", "Steps automatically, promote manually"),
    FieldOption("promote", "Steps and promotes automatically"),
)
POOL = "pool:"
"""Prefix that marks a pool's slug among the candidates."""
_POOLS = 20
_AS_PERCENT = ("late_more", "failed_more")
_GUARDS = GuardrailDocument()


def canary_fields(policy: Policy, version: str = "") -> list[FormField]:
    """Return the form for one policy; `version` is preselected: a version number, or POOL followed by a pool's slug."""
    return [
        _candidate(policy, version),
        FormField(
            "steps", "Share of sessions", help="Increasing percentages; a session keeps its version.", unit="%",
            chosen=(", ".join(f"{item * 100:g}" for item in DEFAULT_STEPS),), limit=80,
        ),
        FormField(
            "min_dwell_s", "Min step duration", NUMBER, unit="s", chosen=(f"{DEFAULT_DWELL_S:g}",), limit=8,
            help="A step also lasts until there are enough requests for a verdict.",
        ),
        FormField(
            "advance", "Advance", SELECT, options=ADVANCES, chosen=("by_hand",),
            help="The canary stops automatically when a guardrail is violated.",
        ),
        _more("late_more", "late requests", _GUARDS.late_more),
        _more("failed_more", "failed requests", _GUARDS.failed_more),
        FormField("ttft_ratio", "Max mean TTFT", unit="× live", chosen=(f"{_GUARDS.ttft_ratio:g}",), limit=8),
        FormField(
            "tail_ratio", "Max slowest 10 %", unit="× live p90", chosen=(f"{_GUARDS.tail_ratio:g}",), limit=8,
            help="The canary stops within a minute when an interval is entirely beyond its threshold.",
        ),
        FormField("why", "Why", help="Required; recorded in the audit.", limit=200),
    ]  # fmt: skip


def asked_from(posted: QueryDict, policy: Policy) -> tuple[PolicyVersion | Pool, dict[str, Any]]:
    """Return the candidate and the schedule in the form; raise InvalidFieldsError."""
    wrong: list[FieldProblem] = []
    steps = [_number("steps", part, wrong) for part in posted.get("steps", "").split(",") if part.strip()]
    dwell_s = _number("min_dwell_s", posted.get("min_dwell_s", ""), wrong)
    guardrails: dict[str, float] = {}
    for name in ("late_more", "failed_more", "ttft_ratio", "tail_ratio"):
        text = posted.get(name, "").strip()
        if text:
            guardrails[name] = _number(name, text, wrong) / (100.0 if name in _AS_PERCENT else 1.0)
    if not posted.get("why", "").strip():
        wrong.append(FieldProblem("why", "Say why this canary starts; the audit keeps it."))
    tried: PolicyVersion | Pool | None = None
    try:
        tried = _named(policy, posted.get("version", ""))
    except InvalidFieldsError as error:
        wrong += error.problems
    course: dict[str, Any] = {
        "steps": [step / 100.0 for step in steps],
        "min_dwell_s": dwell_s,
        "advance": posted.get("advance", "by_hand"),
        "guardrails": guardrails,
    }
    unread = {item.path for item in wrong}
    problems = [
        FieldProblem(course_problem.path.removeprefix("guardrails."), course_problem.message)
        for course_problem in course_problems(**course)
    ]
    wrong += [item for item in problems if item.path not in unread]
    if wrong or tried is None:
        raise InvalidFieldsError(wrong)
    return tried, course


def _candidate(policy: Policy, chosen: str) -> FormField:
    """Return the field that selects a version, or a pool that can serve a share."""
    only = "The canary tests only the placement; other settings take effect on promotion."
    field = version_field("version", "Version", only, drafts_of(policy), chosen, _words)
    waiting = [pool for pool in policy.pools.filter(weight=0).order_by("slug")[:_POOLS] if not service_problem(pool)]
    if not waiting:
        return field
    words = "Pool {}, with the other pools of its model"
    options = (*field.options, *(FieldOption(POOL + pool.slug, words.format(pool.slug)) for pool in waiting))
    known = chosen if chosen in [option.value for option in options] else options[0].value
    return replace(
        field,
        label="Version or pool",
        help=f"With a version: {only[0].lower()}{only[1:]}",
        options=options,
        chosen=(known,),
    )


def _named(policy: Policy, text: str) -> PolicyVersion | Pool:
    """Return the version or pool in the form; raise InvalidFieldsError."""
    if not text.startswith(POOL):
        return version_of(policy, "version", text)
    pool = policy.pools.filter(slug=text.removeprefix(POOL)).first()
    if pool is None:
        raise problem("version", "No such pool of this policy.")
    return pool


def _more(name: str, what: str, limit: float) -> FormField:
    return FormField(name, f"Max increase in {what}", unit="points", chosen=(f"{limit * 100:g}",), limit=8)


def _number(name: str, text: str, wrong: list[FieldProblem]) -> float:
    try:
        value = float(text.strip().rstrip("%"))
    except ValueError:
        value = float("nan")
    # In this form, NaN is rejected, too.
    if not -1e9 < value < 1e9:
        wrong.append(FieldProblem(name, f"Enter a number, not {text.strip()[:20]!r}."))
        return 0.0
    return value


def _words(version: PolicyVersion) -> str:
    placement = version.routing_document.get("placement", {}).get("name", "")
    kind = "" if version.published_at else ", draft"
    return f"v{version.number}{kind}: {placement}" + (f" ({version.message[:60]})" if version.message else "")
