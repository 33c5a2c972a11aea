"""The drawer in which a person confirms an action: its effect, its input fields, and its one button."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from django.urls import reverse

from controlplane.automation.models.engine_action import OPEN_STATES, ActionState, EngineAction
from controlplane.automation.plan_advice import ADVISING, advice_key
from controlplane.automation.pool_policy import pool_automation_of, pool_policy
from controlplane.automation.reading import automation_statuses
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.models.pool import ActuatorKind, Pool
from controlplane.platform.field_problems import FieldProblem
from controlplane.platform.format import count, sentence
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
    """One confirmation form; `action` is the URL of the form."""

    title: str
    button: str
    action: str
    effects: tuple[tuple[str, str], ...]
    fields: tuple[FormField, ...] = (WHY,)
    hidden: tuple[tuple[str, str], ...] = ()
    problem: str = ""
    preview: Mapping[str, int] = field(default_factory=dict)
    """Current, smallest, and largest number of engines; the page explains the effect of the typed number."""

    def rejected(
        self, problems: Sequence[FieldProblem], typed: Mapping[str, Sequence[str]], more: str = ""
    ) -> AutomationQuestion:
        """Return the form again with the typed values and their problems."""
        fields = tuple(filled(self.fields, typed, problems))
        return replace(self, fields=fields, problem=more or general_problem(fields, problems))


def ask(pool: Pool, do: str, query: Mapping[str, str], now: datetime) -> AutomationQuestion | None:
    """Return the form that the URL names; None if it names no form."""
    simple = {"freeze": _freeze, "unfreeze": _unfreeze, "override": _override, "end-override": _end_override}
    if do in simple:
        return simple[do](pool)
    if do == "follow":
        return _follow(pool, query.get("job", ""), now)
    if do in ("confirm", "withdraw"):
        return _of_action(pool, do, query.get("action", ""))
    if do in ("quarantine", "trust"):
        return _of_engine(pool, do, query.get("engine", ""))
    return None


def _freeze(pool: Pool) -> AutomationQuestion:
    waiting = EngineAction.objects.filter(pool=pool, state__in=(ActionState.WANTED, ActionState.DRAINING)).count()
    return AutomationQuestion(
        f"Freeze {pool.name}?",
        f"Freeze {pool.name}",
        reverse("automation-freeze", args=[pool.slug]),
        (
            ("Automations", "keep planning, take no action"),
            ("Actions", f"{count(waiting, 'action')} not yet started will be canceled" if waiting else "none pending"),
            ("Quarantines", "unchanged; the gateway's circuit breaker continues"),
            ("Takes effect", "with the next evaluation, within 5 s"),
            ("Undo", "unfreeze it at any time"),
        ),
        hidden=_revision(pool),
    )


def _unfreeze(pool: Pool) -> AutomationQuestion:
    return AutomationQuestion(
        f"Unfreeze {pool.name}?",
        f"Unfreeze {pool.name}",
        reverse("automation-unfreeze", args=[pool.slug]),
        (("Automations", "continue by policy from the current state"), ("Undo", "freeze it again")),
        hidden=_revision(pool),
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
    return AutomationQuestion(
        f"Fix the engine count of {pool.name}?",
        "Fix engine count",
        reverse("automation-override", args=[pool.slug]),
        (
            (
                "Engines",
                f"{len(roles)} now; Headway starts or drains engines to reach the number, even in advise mode",
            ),
            ("Cooldowns, budget", "ignored; the policy's bounds apply"),
            ("Undo", "end the override at any time"),
        ),
        (engines, *([prefill] if set(roles) - {"mixed"} else []), length, WHY),
        hidden=_revision(pool),
        preview={"now": len(roles), "least": least, "most": bounds.max_engines},
    )


def _end_override(pool: Pool) -> AutomationQuestion:
    return AutomationQuestion(
        "End the override?",
        "End the override",
        reverse("automation-end-override", args=[pool.slug]),
        (("Automations", "resume by policy"), ("Engines", "unchanged until a plan changes their number")),
        hidden=_revision(pool),
    )


def _follow(pool: Pool, job: str, now: datetime) -> AutomationQuestion | None:
    if job not in ADVISING:
        return None
    advising = next(automation for automation in automation_statuses(pool, now) if automation.job == job)
    key = advice_key(job, advising.plan)
    if not key or advising.in_force != "advise":
        return None
    names = dict(Engine.objects.filter(pool=pool).values_list("engine_id", "name"))
    reasons = tuple(("Because", sentence(item["text"])) for item in advising.plan.get("reasons", ())[:3])
    return AutomationQuestion(
        f"Follow this advice ({TITLES[job]}) now?",
        "Do it now",
        reverse("automation-follow", args=[pool.slug]),
        (
            ("Advice", sentence(change_words(job, advising.plan, names))),
            *reasons,
            ("Actuator", f"{ActuatorKind(pool.actuator).label.lower()}"),
            ("Undo", "cancel its actions while they are pending"),
        ),
        hidden=(("job", job), ("advice", key)),
    )


def _of_action(pool: Pool, do: str, key: str) -> AutomationQuestion | None:
    action = EngineAction.objects.filter(pool=pool, key=key[:64], state__in=OPEN_STATES).first()
    if action is None:
        return None
    words = action_words(action.kind, action.role if action.role != "mixed" else "", action.engine_name)
    address = reverse(f"automation-action-{do}", args=[pool.slug, action.key])
    if do == "confirm":
        effects: tuple[tuple[str, str], ...] = (
            ("Action", words),
            (
                "Then",
                "the action ends when the engine serves"
                if action.kind == "start"
                else "the engine is removed or changes its role",
            ),
        )
        return AutomationQuestion(f"{words}: done?", "Mark done", address, effects)
    back = "returns to service" if action.kind != "start" and action.engine_name else "is not started"
    subject = action.engine_name or "the engine"
    effects = (("Action", words), (subject[:1].upper() + subject[1:], back))
    return AutomationQuestion("Cancel the action?", "Cancel action", address, effects)


def _of_engine(pool: Pool, do: str, engine_id: str) -> AutomationQuestion | None:
    engine = Engine.objects.filter(pool=pool, engine_id=engine_id[:64]).first()
    if engine is None:
        return None
    address = reverse(f"automation-{do}", args=[pool.slug, engine.engine_id])
    if do == "quarantine":
        return AutomationQuestion(
            f"Quarantine {engine.name}?",
            f"Quarantine {engine.name}",
            address,
            (
                ("New requests", "go to the other engines of the pool"),
                ("In flight", "continues there"),
                ("Probing", "continues"),
                ("Lasts", "until it is returned to service"),
            ),
        )
    return AutomationQuestion(
        f"Return {engine.name} to service?",
        f"Return {engine.name} to service",
        address,
        (
            ("New requests", "at once, with its full share"),
            ("Engine health", "exempts it for 10 minutes"),
            ("Undo", "quarantine it again"),
        ),
    )


def _revision(pool: Pool) -> tuple[tuple[str, str], ...]:
    stored = getattr(pool, "automation", None)
    return (("revision", str(stored.revision if stored is not None else 1)),)
