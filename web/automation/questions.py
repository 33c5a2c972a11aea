"""The drawer in which a person confirms an action: its effect, its input fields, and its one button."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.urls import reverse

from controlplane.automation.models.engine_action import OPEN_STATES, ActionState, EngineAction
from controlplane.automation.plan_advice import ADVISING, advice_key
from controlplane.automation.pool_policy import pool_automation_of, pool_policy
from controlplane.automation.reading import automation_statuses
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.models.pool import ActuatorKind, Pool
from controlplane.platform.field_problems import FieldProblem
from web.automation.words import TITLES, action_words, change_words
from web.shell.form_field import NUMBER, SELECT, FieldOption, FormField, filled, general_problem

WHY = FormField("why", "Why", help="Optional; shown in the audit log.", limit=200)
LENGTHS = (
    FieldOption("900", "15 minutes"),
    FieldOption("3600", "1 hour"),
    FieldOption("14400", "4 hours"),
    FieldOption("86400", "1 day"),
    FieldOption("604800", "7 days"),
)


@dataclass(frozen=True, slots=True)
class AutomationQuestion:
    """One confirmation form. The template of its kind has the title, the effects, and the button."""

    kind: str
    pool: Pool
    action: str
    """URL of the form."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """What the sentences of its kind mention."""
    fields: tuple[FormField, ...] = (WHY,)
    hidden: tuple[tuple[str, str], ...] = ()
    problem: str = ""
    preview: Mapping[str, int] = field(default_factory=dict)
    """Current, smallest, and largest number of engines; the page explains the effect of the typed number."""

    @property
    def template(self) -> str:
        """Name of the template."""
        return f"automation/ask/{self.kind}.html"

    def rejected(
        self, problems: Sequence[FieldProblem], typed: Mapping[str, Sequence[str]], more: str = ""
    ) -> AutomationQuestion:
        """Return the form again with the typed values and their problems."""
        fields = tuple(filled(self.fields, typed, problems))
        return replace(self, fields=fields, problem=more or general_problem(fields, problems))


def ask(pool: Pool, do: str, query: Mapping[str, str], now: datetime) -> AutomationQuestion | None:
    """Return the form that the URL names; None if it names no form."""
    if do in ("freeze", "unfreeze", "end-override"):
        waiting = EngineAction.objects.filter(pool=pool, state__in=(ActionState.WANTED, ActionState.DRAINING))
        must = replace(WHY, help="Required; shown on the page and in the audit log.")
        more: Mapping[str, Any] = {"facts": {"waiting": waiting.count()}, "fields": (must,)} if do == "freeze" else {}
        return _of_pool(pool, do, **more)
    if do == "override":
        return _override(pool)
    if do == "follow":
        return _follow(pool, query.get("job", ""), now)
    if do in ("confirm", "withdraw"):
        return _of_action(pool, do, query.get("action", ""))
    if do in ("quarantine", "trust"):
        return _of_engine(pool, do, query.get("engine", ""))
    return None


def _of_pool(pool: Pool, do: str, **parts: Any) -> AutomationQuestion:
    stored = getattr(pool, "automation", None)
    revision = str(stored.revision if stored is not None else 1)
    return AutomationQuestion(
        do, pool, reverse(f"automation-{do}", args=[pool.slug]), hidden=(("revision", revision),), **parts
    )


def _override(pool: Pool) -> AutomationQuestion:
    roles = list(Engine.objects.filter(pool=pool, desired_state=DesiredState.READY).values_list("role", flat=True))
    bounds = pool_policy(pool).automation.scaling
    least = max(1, bounds.min_engines)
    switches = pool_automation_of(pool)
    engines = FormField(
        "engines",
        "Engines",
        NUMBER,
        unit="engines",
        help=f"The live policy allows {least} to {bounds.max_engines}.",
        chosen=(str(switches.override_engines or len(roles)),),
    )
    prefill = FormField(
        "prefill",
        "Prefill engines",
        NUMBER,
        unit="engines",
        help="Empty: the ratio automation decides.",
        chosen=(str(switches.override_prefill or ""),),
    )
    length = FormField(
        "length_s",
        "For",
        SELECT,
        help="Automations resume afterwards.",
        options=LENGTHS,
        chosen=("3600",),
    )
    return _of_pool(
        pool,
        "override",
        fields=(engines, *([prefill] if set(roles) - {"mixed"} else []), length, WHY),
        preview={"now": len(roles), "least": least, "most": bounds.max_engines},
    )


def _follow(pool: Pool, job: str, now: datetime) -> AutomationQuestion | None:
    if job not in ADVISING:
        return None
    advising = next(automation for automation in automation_statuses(pool, now) if automation.job == job)
    key = advice_key(job, advising.plan)
    if not key or advising.in_force != "advise":
        return None
    names = dict(Engine.objects.filter(pool=pool).values_list("engine_id", "name"))
    facts = {
        "title": TITLES[job],
        "advice": change_words(job, advising.plan, names),
        "reasons": [item["text"] for item in advising.plan.get("reasons", ())[:3]],
        "actuator": ActuatorKind(pool.actuator).label,
    }
    address = reverse("automation-follow", args=[pool.slug])
    return AutomationQuestion("follow", pool, address, facts, hidden=(("job", job), ("advice", key)))


def _of_action(pool: Pool, do: str, key: str) -> AutomationQuestion | None:
    action = EngineAction.objects.filter(pool=pool, key=key[:64], state__in=OPEN_STATES).first()
    if action is None:
        return None
    words = action_words(action.kind, action.role if action.role != "mixed" else "", action.engine_name)
    address = reverse(f"automation-action-{do}", args=[pool.slug, action.key])
    return AutomationQuestion(do, pool, address, {"action": action, "words": words})


def _of_engine(pool: Pool, do: str, engine_id: str) -> AutomationQuestion | None:
    engine = Engine.objects.filter(pool=pool, engine_id=engine_id[:64]).first()
    if engine is None:
        return None
    return AutomationQuestion(
        do, pool, reverse(f"automation-{do}", args=[pool.slug, engine.engine_id]), {"engine": engine}
    )
