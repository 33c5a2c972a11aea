"""The form that starts a canary: which version, which shares, how far by itself, and the lines it must not cross."""

from __future__ import annotations

from typing import Any

from django.http import QueryDict

from controlplane.models import Policy, PolicyVersion
from controlplane.services.canaries import DEFAULT_DWELL_S, DEFAULT_STEPS, course_problems
from controlplane.services.field_problems import FieldProblem, InvalidFieldsError
from planning.documents.guardrail_document import GuardDocument
from web.form_field import NUMBER, SELECT, FormField, Option

_LISTED_VERSIONS = 40
ADVANCES = (
    Option("by_hand", "Only when somebody says so"),
    Option("steps", "Steps by itself, promoting by hand"),
    Option("promote", "Steps and promoting by itself"),
)
_AS_PERCENT = ("late_more", "failed_more")
_GUARDS = GuardDocument()


def canary_fields(policy: Policy, version: str = "") -> list[FormField]:
    """Return the form for one policy; `version` is chosen beforehand."""
    live = policy.live_version
    versions = list(policy.versions.order_by("-number")[:_LISTED_VERSIONS])
    offered = [each for each in versions if live is None or each.pk != live.pk]
    numbers = [str(each.number) for each in offered]
    first = version if version in numbers else (numbers[0] if numbers else "")
    return [
        FormField(
            "version", "Version", SELECT, help="Its placement is tried; other settings come with promoting.",
            options=tuple(Option(str(each.number), _words(each)) for each in offered), chosen=(first,),
        ),
        FormField(
            "steps", "Share of sessions", help="Rising percentages; a session stays with its version.", unit="%",
            chosen=(", ".join(f"{each * 100:g}" for each in DEFAULT_STEPS),), limit=80,
        ),
        FormField(
            "min_dwell_s", "Each step at least", NUMBER, unit="s", chosen=(f"{DEFAULT_DWELL_S:g}",), limit=8,
            help="And until there are requests enough to judge by.",
        ),
        FormField("advance", "Goes on", SELECT, options=ADVANCES, chosen=("by_hand",), help="Giving up is automatic."),
        FormField(
            "late_more", "More late requests at most", unit="points", chosen=(f"{_GUARDS.late_more * 100:g}",), limit=8
        ),
        FormField(
            "failed_more", "More failed requests at most", unit="points", chosen=(f"{_GUARDS.failed_more * 100:g}",),
            limit=8,
        ),
        FormField("ttft_ratio", "Mean TTFT at most", unit="× live", chosen=(f"{_GUARDS.ttft_ratio:g}",), limit=8),
        FormField(
            "tail_ratio", "Slowest tenth at most", unit="× live p90", chosen=(f"{_GUARDS.tail_ratio:g}",), limit=8,
            help="Past a line by more than chance explains, the canary is given up within a minute.",
        ),
        FormField("why", "Why", help="Kept in the audit.", limit=200),
    ]  # fmt: skip


def asked_from(posted: QueryDict, policy: Policy) -> tuple[PolicyVersion, dict[str, Any]]:
    """Return the version and the course that the form asks for; raises InvalidFieldsError."""
    wrong: list[FieldProblem] = []
    steps = [_number("steps", each, wrong) for each in posted.get("steps", "").split(",") if each.strip()]
    dwell_s = _number("min_dwell_s", posted.get("min_dwell_s", ""), wrong)
    guards: dict[str, float] = {}
    for name in ("late_more", "failed_more", "ttft_ratio", "tail_ratio"):
        text = posted.get(name, "").strip()
        if text:
            guards[name] = _number(name, text, wrong) / (100.0 if name in _AS_PERCENT else 1.0)
    text = posted.get("version", "")
    number = int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else 0
    version = policy.versions.filter(number=number).first()
    if version is None:
        wrong.append(FieldProblem("version", "There is no such version; save a draft of the policy first."))
    course: dict[str, Any] = {
        "steps": [each / 100.0 for each in steps],
        "min_dwell_s": dwell_s,
        "advance": posted.get("advance", "by_hand"),
        "guards": guards,
    }
    unread = {each.path for each in wrong}
    found = [FieldProblem(each.path.removeprefix("guards."), each.message) for each in course_problems(**course)]
    wrong += [each for each in found if each.path not in unread]
    if wrong or version is None:
        raise InvalidFieldsError(wrong)
    return version, course


def _number(name: str, text: str, wrong: list[FieldProblem]) -> float:
    try:
        value = float(text.strip().rstrip("%"))
    except ValueError:
        value = float("nan")
    if not -1e9 < value < 1e9:
        wrong.append(FieldProblem(name, f"Give a number, not {text.strip()[:20]!r}."))
        return 0.0
    return value


def _words(version: PolicyVersion) -> str:
    placement = version.routing_document.get("placement", {}).get("name", "")
    kind = "" if version.published_at else ", draft"
    return f"v{version.number}{kind}: {placement}" + (f" ({version.message[:60]})" if version.message else "")
