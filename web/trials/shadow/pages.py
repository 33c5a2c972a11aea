"""The shadow pages: the list, the form, and each shadow's results in words, figures, charts, and examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from typing_extensions import override

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool, PoolMode
from controlplane.fleet.topology import change_pool
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError
from controlplane.platform.format import moment, moment_of, span
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from controlplane.request_log.models.decision_index import DecisionIndex
from controlplane.trials.models.shadow import Shadow, ShadowState
from controlplane.trials.shadow.lifecycle import start_shadow, stop_shadow, visible_shadows
from controlplane.trials.shadow.reading import ShadowFigures, figures_of
from gateway.contracts.shadow_tally import Disagreement
from web.live.engine_card import reason_title
from web.shell.console_request import asked, sent
from web.shell.form_field import NUMBER, SELECT, FieldOption, FormField, whole_number
from web.shell.rejection import FormRejection
from web.trials.shadow.finding import ENOUGH, finding
from web.trials.shadow.pictures import SHOWN_ENGINES, engine_shifts, gain_picture
from web.trials.trial_page import ADDRESS, TrialPages, sent_pool
from web.trials.version_field import drafts_of, version_field, version_of, version_words

_PARTS = {
    "order": "queue order",
    "dispatch_limit": "pushing",
    "cost": "learned estimates",
    "ttft_slo_s": "TTFT objective",
    "slo_classes": "SLO classes",
    "prefill_window_tokens": "prefill window",
    "lookahead_s": "look-ahead",
}
"""Names of the parts that a shadow cannot compare, where they differ from the field's."""
LENGTHS = (("15", "15 min"), ("60", "1 h"), ("480", "8 h"), ("1440", "1 d"))


class ShadowPages(TrialPages):
    """The list of shadows, and the page of each shadow."""

    name, plural, address = "shadow", "Shadows", f"{ADDRESS}/shadows"
    page = "trials/shadow/page.html"

    @override
    def visible(self, actor: Actor) -> QuerySet[Shadow]:
        return visible_shadows(actor)

    @override
    def rows(self, shadows: list[Shadow], actor: Actor, now: datetime) -> dict[str, Any]:
        running = visible_shadows(actor).filter(state=ShadowState.RUNNING).count()
        return {"rows": [_row(item, now) for item in shadows], "running": running}

    @override
    def fields(self, request: HttpRequest, owner: Pool, actor: Actor) -> Sequence[FormField]:
        return _fields(owner, asked(request, "draft"))

    @override
    def start(self, request: HttpRequest, actor: Actor) -> Shadow:
        pool = sent_pool(request, actor)
        problems: list[FieldProblem] = []
        asked_for = {name: whole_number(name, sent(request, name), problems) for name in ("minutes", "max_per_s")}
        if problems:
            raise InvalidFieldsError(problems)
        version = version_of(pool.policy, "draft", sent(request, "draft"))
        limits = {name: value for name, value in asked_for.items() if value is not None}
        return start_shadow(pool, version, **limits, actor=actor, why=sent(request, "why"))

    @override
    def turn(self, request: HttpRequest, shadow: Shadow, action: str, actor: Actor) -> object:
        """Stop the shadow, or switch its observe-only pool to routing."""
        if action == "route":
            return change_pool(shadow.pool, {"mode": PoolMode.ROUTE}, actor=actor, why=sent(request, "why"))
        return stop_shadow(shadow, actor=actor, why=sent(request, "why"))

    @override
    def page_needs(self, request: HttpRequest, shadow: Shadow, actor: Actor) -> str:
        if "ask" not in request.GET or not _observes(shadow) or may(actor, Role.ADMIN):
            return ""
        return "Starting to route a pool requires the role admin in all pools."

    @override
    def shown(
        self, request: HttpRequest, shadow: Shadow, actor: Actor, now: datetime, rejection: FormRejection | None
    ) -> dict[str, Any]:
        figures, admin = figures_of(shadow), may(actor, Role.ADMIN)
        beside = ("actual", "Actual") if shadow.observed else ("base", f"v{shadow.base.number}")
        return {
            "title": f"shadow {shadow.pk}",
            "about": f"Shadow {shadow.pk}, {shadow.pool.slug}",
            "running": shadow.state == ShadowState.RUNNING,
            "left": span((shadow.until - now).total_seconds()),
            "at": moment(shadow.created_at, now),
            "ended": moment(shadow.ended_at, now),
            "author": shadow.author.get_username() if shadow.author else _program(shadow),
            "has_end": not _is_live_alone(shadow),
            # The live policy keeps its own colour where it is compared with others.
            "keys": (beside, ("base" if _is_live_alone(shadow) else "draft", f"v{shadow.draft.number}")),
            "policy": shadow.pool.policy.slug,
            "may_control": may(actor, Role.OPERATOR, shadow.pool),
            "finding": finding(shadow, figures),
            "enough": ENOUGH,
            "figures": figures,
            "uncompared": [_PARTS.get(item, item.replace("_", " ")) for item in figures.uncompared],
            "may_route": _observes(shadow) and admin,
            "lacks_admin": _observes(shadow) and not admin,
            "asking": "ask" in request.GET,
            **_answer(shadow, figures, now),
        }


def _fields(pool: Pool, draft: str) -> list[FormField]:
    live, drafts = pool.policy.live_version, drafts_of(pool.policy)
    beside = f"Compared with v{live.number}, the live version." if live else "No version is live yet for comparison."
    if not drafts:
        beside = "No draft yet; save one under Policies first."
    return [
        version_field("draft", "Draft", beside, drafts, draft, version_words),
        FormField(
            "minutes", "Ends after", SELECT, help="It also ends when another version goes live.",
            options=tuple(FieldOption(*item) for item in LENGTHS), chosen=("60",),
        ),
        FormField(
            "max_per_s", "At most", NUMBER, unit="requests/s", limit=4, chosen=("50",),
            help="Requests compared per gateway; each costs some CPU time, which is measured.",
        ),
    ]  # fmt: skip


def _row(shadow: Shadow, now: datetime) -> dict[str, Any]:
    figures = figures_of(shadow)
    at = moment(shadow.created_at, now)
    return {"shadow": shadow, "at": at, "finding": finding(shadow, figures), "figures": figures}


def _observes(shadow: Shadow) -> bool:
    return shadow.observed and shadow.pool.mode == PoolMode.OBSERVE


def _program(shadow: Shadow) -> str:
    return "the pool's mode" if _is_live_alone(shadow) else "the API"


def _is_live_alone(shadow: Shadow) -> bool:
    """Return whether the live policy itself is compared with another router's decisions."""
    return shadow.observed and shadow.draft_id == shadow.base_id


def _answer(shadow: Shadow, figures: ShadowFigures, now: datetime) -> dict[str, Any]:
    if not figures.tally.compared:
        return {}
    names = dict(Engine.objects.filter(pool=shadow.pool).values_list("engine_id", "name"))
    sample = figures.disagreements
    kept = set(
        DecisionIndex.objects.filter(decision_id__in=[item.decision_id for item in sample]).values_list(
            "decision_id", flat=True
        )
    )
    return {
        "spread": [figures.gain_quantile_s(share) for share in (0.1, 0.5, 0.9)],
        "not_compared": figures.tally.left_out + figures.tally.unbound,
        "picture": gain_picture(figures),
        "gain_heads": ("Requests", "Share"),
        "most_of_an_engine": max(
            (max(share.live_requests, share.shadow_requests) for _, share in figures.engines), default=0
        ),
        "shifts": engine_shifts(figures, names),
        "hidden_engines": max(0, len(figures.engines) - SHOWN_ENGINES),
        "examples": [_example(item, item.decision_id in kept, names, now) for item in sample],
    }


def _example(one: Disagreement, kept: bool, names: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """Return one request on which the policies differ; `kept` means that its record is in the decision store."""
    gain_s = one.live.cost - one.shadow.cost
    sides = ((one.live, one.live_reason), (one.shadow, one.shadow_reason))
    return {
        "decision_id": one.decision_id,
        "kept": kept,
        "at": moment_of(datetime.fromtimestamp(one.at, UTC), now),
        "prompt_tokens": one.prompt_tokens,
        "sides": [(names.get(engine.engine_id, engine.engine_id), reason_title(why), engine) for engine, why in sides],
        "gain_s": gain_s,
        "kind": "better" if gain_s >= 0.001 else "worse" if gain_s <= -0.001 else "even",
    }


PAGES = ShadowPages()
