"""The drawer in which a person decides: what a verb will do, what it needs to know, and its one button."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from django.urls import reverse

from controlplane.automation.pool_policy import pool_policy, steering_of
from controlplane.models import Engine, EngineOrder, Pool
from controlplane.models.engine import DesiredState
from controlplane.models.engine_order import OPEN_STATES, OrderState
from controlplane.models.pool import ActuatorKind
from controlplane.services.automation_reading import automation_standings
from controlplane.services.field_problems import FieldProblem
from controlplane.services.plan_advice import ADVISING, advice_key
from web.form_field import NUMBER, SELECT, FormField, Option, filled, general_problem
from web.live.wording import count, sentence
from web.pages.steering_words import TITLES, change_words, order_words

WHY = FormField("why", "Why", help="For the audit; optional.", limit=200)
LENGTHS = (
    Option("900", "15 minutes"),
    Option("3600", "1 hour"),
    Option("14400", "4 hours"),
    Option("86400", "1 day"),
    Option("604800", "7 days"),
)


@dataclass(frozen=True, slots=True)
class SteeringAsk:
    """One question. `action` is where its form goes."""

    title: str
    button: str
    action: str
    effects: tuple[tuple[str, str], ...]
    fields: tuple[FormField, ...] = (WHY,)
    hidden: tuple[tuple[str, str], ...] = ()
    problem: str = ""
    preview: Mapping[str, int] = field(default_factory=dict)
    """How many engines there are, and the least and most that may be asked for; the page says what a number does."""

    def refused(
        self, problems: Sequence[FieldProblem], typed: Mapping[str, Sequence[str]], more: str = ""
    ) -> SteeringAsk:
        """Return the question again with what was typed and what is wrong with it."""
        fields = tuple(filled(self.fields, typed, problems))
        return replace(self, fields=fields, problem=more or general_problem(fields, problems))


def ask(pool: Pool, do: str, query: Mapping[str, str], now: datetime) -> SteeringAsk | None:
    """Return the question that an address asks; None where there is nothing to ask."""
    simple = {"freeze": _freeze, "unfreeze": _unfreeze, "override": _override, "end-override": _end_override}
    if do in simple:
        return simple[do](pool)
    if do == "follow":
        return _follow(pool, query.get("job", ""), now)
    if do in ("confirm", "withdraw"):
        return _of_order(pool, do, query.get("order", ""))
    if do in ("quarantine", "trust"):
        return _of_engine(pool, do, query.get("engine", ""))
    return None


def _freeze(pool: Pool) -> SteeringAsk:
    waiting = EngineOrder.objects.filter(pool=pool, state__in=(OrderState.WANTED, OrderState.DRAINING)).count()
    return SteeringAsk(
        f"Freeze {pool.name}?",
        f"Freeze {pool.name}",
        reverse("steering-freeze", args=[pool.slug]),
        (
            ("Automations", "plan on and do nothing"),
            ("Orders", f"{count(waiting, 'order')} that no actuator began are taken back" if waiting else "none waits"),
            ("Quarantines", "stay as they are; the gateway's own breaker goes on"),
            ("Takes effect", "with the next round, within 5 s"),
            ("Take back", "unfreeze it at any time"),
        ),
        hidden=_revision(pool),
    )


def _unfreeze(pool: Pool) -> SteeringAsk:
    return SteeringAsk(
        f"Unfreeze {pool.name}?",
        f"Unfreeze {pool.name}",
        reverse("steering-unfreeze", args=[pool.slug]),
        (("Automations", "go on as the policy says, from what they see now"), ("Take back", "freeze it again")),
        hidden=_revision(pool),
    )


def _override(pool: Pool) -> SteeringAsk:
    roles = list(Engine.objects.filter(pool=pool, desired_state=DesiredState.READY).values_list("role", flat=True))
    bounds = pool_policy(pool).automation.scaling
    least = max(1, bounds.min_engines)
    switches = steering_of(pool)
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
        "Of the prefill role",
        NUMBER,
        unit="engines",
        help="Leave it empty to let the ratio decide.",
        chosen=(str(switches.override_prefill or ""),),
    )
    length = FormField(
        "length_s",
        "For",
        SELECT,
        help="Afterwards the automations steer again.",
        options=LENGTHS,
        chosen=("3600",),
    )
    return SteeringAsk(
        f"Hold {pool.name} by hand?",
        "Hold it there",
        reverse("steering-override", args=[pool.slug]),
        (
            ("Engines", f"{len(roles)} at this moment; more are started at once, fewer are drained, in every mode"),
            ("Pauses, budget", "do not hold this back; the policy's bounds do"),
            ("Take back", "end the override at any time"),
        ),
        (engines, *([prefill] if set(roles) - {"mixed"} else []), length, WHY),
        hidden=_revision(pool),
        preview={"now": len(roles), "least": least, "most": bounds.max_engines},
    )


def _end_override(pool: Pool) -> SteeringAsk:
    return SteeringAsk(
        "End the override?",
        "End the override",
        reverse("steering-end-override", args=[pool.slug]),
        (("Automations", "steer again as the policy says"), ("Engines", "stay until a plan changes their number")),
        hidden=_revision(pool),
    )


def _follow(pool: Pool, job: str, now: datetime) -> SteeringAsk | None:
    if job not in ADVISING:
        return None
    standing = next(each for each in automation_standings(pool, now) if each.job == job)
    key = advice_key(job, standing.plan)
    if not key or standing.in_force != "advise":
        return None
    names = dict(Engine.objects.filter(pool=pool).values_list("engine_id", "name"))
    reasons = tuple(("Because", sentence(each["text"])) for each in standing.plan.get("reasons", ())[:3])
    return SteeringAsk(
        f"{TITLES[job]}: do it now?",
        "Do it now",
        reverse("steering-follow", args=[pool.slug]),
        (
            ("Advice", sentence(change_words(job, standing.plan, names))),
            *reasons,
            ("Carried out by", f"{ActuatorKind(pool.actuator).label.lower()}"),
            ("Take back", "withdraw its orders while they wait"),
        ),
        hidden=(("job", job), ("advice", key)),
    )


def _of_order(pool: Pool, do: str, key: str) -> SteeringAsk | None:
    order = EngineOrder.objects.filter(pool=pool, key=key[:64], state__in=OPEN_STATES).first()
    if order is None:
        return None
    words = order_words(order.kind, order.role if order.role != "mixed" else "", order.engine_name)
    address = reverse(f"steering-order-{do}", args=[pool.slug, order.key])
    if do == "confirm":
        effects: tuple[tuple[str, str], ...] = (
            ("Order", words),
            (
                "Then",
                "it ends when the engine serves" if order.kind == "start" else "the engine is forgotten or turned",
            ),
        )
        return SteeringAsk(f"{words}: done?", "It is done", address, effects)
    back = "takes work again" if order.kind != "start" and order.engine_name else "is not started"
    subject = order.engine_name or "the engine"
    effects = (("Order", words), (subject[:1].upper() + subject[1:], back))
    return SteeringAsk("Take the order back?", "Take it back", address, effects)


def _of_engine(pool: Pool, do: str, engine_id: str) -> SteeringAsk | None:
    engine = Engine.objects.filter(pool=pool, engine_id=engine_id[:64]).first()
    if engine is None:
        return None
    address = reverse(f"steering-{do}", args=[pool.slug, engine.engine_id])
    if do == "quarantine":
        return SteeringAsk(
            f"Quarantine {engine.name}?",
            f"Quarantine {engine.name}",
            address,
            (
                ("New requests", "go to the other engines of the pool"),
                ("In flight", "goes on there"),
                ("Probing", "goes on; nothing is stopped"),
                ("Lasts", "until somebody trusts it again"),
            ),
        )
    return SteeringAsk(
        f"Trust {engine.name} again?",
        f"Trust {engine.name} again",
        address,
        (
            ("New requests", "come to it at once, all of its share"),
            ("Engine health", "does not judge it for 10 minutes"),
            ("Take back", "quarantine it by hand"),
        ),
    )


def _revision(pool: Pool) -> tuple[tuple[str, str], ...]:
    stored = getattr(pool, "steering", None)
    return (("revision", str(stored.revision if stored is not None else 1)),)
