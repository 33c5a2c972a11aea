"""The what-if form: traffic, draft, baseline, and conditions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.http import QueryDict
from django.utils import timezone

from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError, problem
from controlplane.platform.format import count
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.request_log.models.recording import Recording
from controlplane.request_log.recordings.lifecycle import record_window, recorded_words, visible_recordings
from controlplane.trials.whatif.conditions import AUTO, Conditions, conditions_of
from routing.registry import BASELINES
from web.shell.console_request import row_number
from web.shell.form_field import CHECKS, NUMBER, SELECT, FieldOption, FormField, whole_number
from web.trials.version_field import listed_versions, version_field, version_of, version_words

WINDOWS = {"5": "Last 5 min", "15": "Last 15 min", "60": "Last hour"}
_LISTED_RECORDINGS = 100
_SEEDS = ("1", "3", "5", "10")
_MODELS = (
    FieldOption(AUTO, "Best fit to this recording"),
    FieldOption("chunked", "Chunked prefill, as vLLM V1"),
    FieldOption("colocated", "Prefill first (colocated)"),
    FieldOption("reference", "One prefill at a time"),
)

_BASELINES = (
    FieldOption("", "Its own placement"),
    *(FieldOption(name, name, group="Baselines (simulated only)") for name in sorted(BASELINES)),
)

Asked = tuple[Recording, PolicyVersion, PolicyVersion | None, Conditions]


def whatif_fields(actor: Actor, pool: Pool, draft: str = "", recording: str = "") -> list[FormField]:
    """Return the form for one pool; `draft` and `recording` are preselected."""
    live = pool.policy.live_version
    versions = listed_versions(pool.policy)
    drafts = sorted(versions, key=lambda version: version.pk == pool.policy.live_version_id)
    recordings = visible_recordings(actor).filter(pool=pool)[:_LISTED_RECORDINGS]
    windows = [FieldOption(f"last-{minutes}", words) for minutes, words in WINDOWS.items()]
    kept = [FieldOption(str(item.pk), f"{item.name} ({count(item.requests, 'request')})") for item in recordings]
    return [
        FormField(
            "recording", "Traffic", SELECT, help=recorded_words(), options=(*windows, *kept),
            chosen=(recording or "last-15",),
        ),
        version_field("draft", "Draft", "Version to test.", drafts, draft, version_words),
        version_field("base", "Baseline", "Compare with.", versions, str(live.number) if live else "", version_words),
        FormField(
            "base_placement", "Baseline placement", SELECT, help="Replaces that version's placement by a baseline.",
            options=_BASELINES, chosen=("",),
        ),
        FormField(
            "seeds", "Seeds", SELECT, help="Repeats per policy; more give tighter ranges.",
            options=tuple(FieldOption(item, item) for item in _SEEDS), chosen=("3",),
        ),
        FormField("engine_model", "Engine model", SELECT, options=_MODELS, chosen=(AUTO,)),
        FormField(
            "engines", "Engines", NUMBER, help="Empty: as many as in the recording.", limit=3
        ),
        FormField(
            "goodput", "More", CHECKS, chosen=(),
            options=(FieldOption("1", "Search goodput", "Highest rate with 90 % on time; takes many times longer."),),
        ),
    ]  # fmt: skip


def asked_from(posted: QueryDict, pool: Pool, actor: Actor) -> Asked:
    """Return the what-if in the form; a window becomes a recording. Raise InvalidFieldsError or NoRoomError."""
    problems: list[FieldProblem] = []
    engines = whole_number("engines", posted.get("engines", ""), problems)
    seeds = whole_number("seeds", posted.get("seeds", ""), problems)
    if problems:
        raise InvalidFieldsError(problems)
    given: dict[str, Any] = {"goodput": bool(posted.get("goodput"))}
    given |= {name: value for name, value in (("seeds", seeds), ("engines", engines)) if value is not None}
    given |= {name: posted[name] for name in ("engine_model", "base_placement") if posted.get(name)}
    conditions = conditions_of(given)
    draft = version_of(pool.policy, "draft", posted.get("draft", ""))
    base = version_of(pool.policy, "base", posted["base"]) if posted.get("base") else None
    if draft == (base or pool.policy.live_version) and not conditions.base_placement:
        raise problem("base", "Same version; choose another one, or a baseline placement.")
    return _recording(posted.get("recording", ""), pool, actor), draft, base, conditions


def is_window(posted: QueryDict) -> bool:
    """Return whether the form selects a time window, which is then recorded for this what-if."""
    return posted.get("recording", "").removeprefix("last-") in WINDOWS


def _recording(text: str, pool: Pool, actor: Actor) -> Recording:
    minutes = text.removeprefix("last-")
    if text.startswith("last-") and minutes in WINDOWS:
        now = timezone.now()
        try:
            return record_window(pool, now - timedelta(minutes=int(minutes)), now, actor=actor)
        except InvalidFieldsError as error:
            raise InvalidFieldsError([FieldProblem("recording", item.message) for item in error.problems]) from error
    number = row_number(text, 9)
    recording = None if number is None else visible_recordings(actor).filter(pool=pool, pk=number).first()
    if recording is None:
        raise problem("recording", "Not a recording of this pool; choose one from the list.")
    return recording
