"""The form that asks a what-if: which traffic, which draft, against what, under which conditions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.http import QueryDict
from django.utils import timezone

from controlplane.models import PolicyVersion, Pool, Recording
from controlplane.services.actor import Actor
from controlplane.services.field_problems import FieldProblem, InvalidFieldsError, problem
from controlplane.services.recordings import record_window, recorded_words, visible_recordings
from controlplane.whatif.conditions import AUTO, Conditions, conditions_of
from routing.registry import BASELINES
from web.form_field import CHECKS, NUMBER, SELECT, FormField, Option, whole_number
from web.live.wording import count

WINDOWS = {"5": "Last 5 min", "15": "Last 15 min", "60": "Last hour"}
_LISTED_VERSIONS = 40
_LISTED_RECORDINGS = 100
_SEEDS = ("1", "3", "5", "10")
_MODELS = (
    Option(AUTO, "As comes closest to what happened"),
    Option("chunked", "Chunked prefill, as vLLM V1"),
    Option("colocated", "Prefills first (colocated)"),
    Option("reference", "One prefill at a time"),
)

_BASELINES = (Option("", "Its own placement"), *(Option(name, name) for name in sorted(BASELINES)))

Asked = tuple[Recording, PolicyVersion, PolicyVersion | None, Conditions]


def whatif_fields(actor: Actor, pool: Pool, draft: str = "", recording: str = "") -> list[FormField]:
    """Return the form for one pool; `draft` and `recording` are chosen beforehand."""
    live = pool.policy.live_version
    versions = list(pool.policy.versions.order_by("-number")[:_LISTED_VERSIONS])
    drafts = [each for each in versions if live is None or each.number != live.number]
    drafts += [each for each in versions if each not in drafts]
    recordings = visible_recordings(actor).filter(pool=pool)[:_LISTED_RECORDINGS]
    windows = [Option(f"last-{minutes}", words) for minutes, words in WINDOWS.items()]
    kept = [Option(str(each.pk), f"{each.name} ({count(each.requests, 'request')})") for each in recordings]
    first = draft if draft in [str(each.number) for each in drafts] else str(drafts[0].number) if drafts else ""
    return [
        FormField(
            "recording", "Traffic", SELECT, help=recorded_words(), options=(*windows, *kept),
            chosen=(recording or "last-15",),
        ),
        FormField(
            "draft", "Draft", SELECT, help="What would have decided.", options=version_options(drafts, pool),
            chosen=(first,),
        ),
        FormField(
            "base", "Against", SELECT, help="Usually the live version.", options=version_options(versions, pool),
            chosen=(str(live.number) if live else "",),
        ),
        FormField(
            "base_placement", "Placed there by", SELECT, help="A baseline takes the place of that version's rule.",
            options=_BASELINES, chosen=("",),
        ),
        FormField(
            "seeds", "Seeds", SELECT, help="Runs of each policy; more show how far chance goes.",
            options=tuple(Option(each, each) for each in _SEEDS), chosen=("3",),
        ),
        FormField("engine_model", "Engines mix work", SELECT, options=_MODELS, chosen=(AUTO,)),
        FormField(
            "engines", "Engines", NUMBER, help="Empty: as many as took work then.", limit=3
        ),
        FormField(
            "goodput", "More", CHECKS, chosen=(),
            options=(Option("1", "Search goodput", "The largest rate with 90 % on time; takes many times longer."),),
        ),
    ]  # fmt: skip


def asked_from(posted: QueryDict, pool: Pool, actor: Actor) -> Asked:
    """Return what the form asks; a window is kept as a recording. Raises InvalidFieldsError, NoRoomError."""
    problems: list[FieldProblem] = []
    engines = whole_number("engines", posted.get("engines", ""), problems)
    seeds = whole_number("seeds", posted.get("seeds", ""), problems)
    if problems:
        raise InvalidFieldsError(problems)
    given: dict[str, Any] = {"goodput": bool(posted.get("goodput"))}
    given |= {name: value for name, value in (("seeds", seeds), ("engines", engines)) if value is not None}
    given |= {name: posted[name] for name in ("engine_model", "base_placement") if posted.get(name)}
    conditions = conditions_of(given)
    draft = _version(pool, "draft", posted.get("draft", ""))
    base = _version(pool, "base", posted["base"]) if posted.get("base") else None
    if draft == (base or pool.policy.live_version) and not conditions.base_placement:
        raise problem("base", "Is the same version; choose another one, or a baseline that places requests there.")
    return _recording(posted.get("recording", ""), pool, actor), draft, base, conditions


def is_window(posted: QueryDict) -> bool:
    """Return whether the form asks for a window, which is kept for this what-if."""
    return posted.get("recording", "").removeprefix("last-") in WINDOWS


def _recording(text: str, pool: Pool, actor: Actor) -> Recording:
    minutes = text.removeprefix("last-")
    if text.startswith("last-") and minutes in WINDOWS:
        now = timezone.now()
        try:
            return record_window(pool, now - timedelta(minutes=int(minutes)), now, actor=actor)
        except InvalidFieldsError as error:
            raise InvalidFieldsError([FieldProblem("recording", each.message) for each in error.problems]) from error
    found = visible_recordings(actor).filter(pool=pool, pk=int(text)).first() if _is_number(text) else None
    if found is None:
        raise problem("recording", "Is no recording of this pool; choose one of the list.")
    return found


def _version(pool: Pool, name: str, text: str) -> PolicyVersion:
    found = pool.policy.versions.filter(number=int(text)).first() if _is_number(text) else None
    if found is None:
        raise problem(name, "There is no such version; save a draft of the policy first.")
    return found


def version_options(versions: list[PolicyVersion], pool: Pool) -> tuple[Option, ...]:
    """Return the versions as choices that say what each is."""
    live = pool.policy.live_version
    return tuple(Option(str(each.number), f"v{each.number}{_kind(each, live)}{_about(each)}") for each in versions)


def _kind(version: PolicyVersion, live: PolicyVersion | None) -> str:
    if live is not None and version.number == live.number:
        return " live"
    return " draft" if version.published_at is None else " earlier"


def _about(version: PolicyVersion) -> str:
    return f": {version.message[:60]}" if version.message else ""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10
