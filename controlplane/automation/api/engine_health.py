"""`/api/v1/engines/…/health`, and the actions with which a person changes an engine's health."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from django.utils import timezone
from typing_extensions import override

from controlplane.automation import engine_verdicts
from controlplane.automation.api.automation_shape import EngineHealthShape
from controlplane.automation.models.engine_health import EngineHealth, HealthState
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.visibility import visible_engines
from controlplane.platform.actor import Actor
from controlplane.platform.api.problem import ProblemError
from controlplane.platform.api.strict_fields import ChangeBody
from controlplane.platform.api.views import ObjectView, Verb, by_method


def _engines(actor: Actor) -> QuerySet[Engine]:
    return visible_engines(actor).select_related("health")


def _health_of(engine: Engine) -> EngineHealth:
    """Return the engine's health. An engine without a verdict counts as healthy since its registration."""
    stored: EngineHealth | None = getattr(engine, "health", None)
    return stored or EngineHealth(engine=engine, state=HealthState.HEALTHY, since=engine.registered_at)


class OneEngineHealth(ObjectView):
    """Health of one engine, as judged by the automation or a person."""

    noun = "engines"
    shape = EngineHealthShape
    rows = staticmethod(_engines)
    says = by_method(
        GET="Return state, reason, and start time. An engine without a verdict is healthy since its registration."
    )

    @override
    def thing(self, **names: Any) -> EngineHealth:
        """Return the engine's health."""
        return _health_of(super().thing(**names))


class _Judgement(Verb):
    noun = "engines"
    shape = EngineHealthShape
    rows = staticmethod(_engines)
    bodies = by_method(POST=ChangeBody)
    rejection: ClassVar[str] = ""
    """Detail of the 409 response if nothing changes; empty: no error."""

    @override
    def carry_out(self, thing: Engine, **asked: Any) -> EngineHealth:
        """Carry out an action of controlplane.automation.engine_verdicts, and return the resulting health."""
        if not self.verb(thing, at=timezone.now(), **asked) and self.rejection:
            raise ProblemError(409, self.rejection)
        return _health_of(self.thing(engine_id=thing.engine_id))


class EngineQuarantine(_Judgement):
    """Send the engine no new work until a person trusts it again or ends the verdict."""

    verb = staticmethod(engine_verdicts.quarantine)


class EngineTrust(_Judgement):
    """Give a quarantined or returning engine its full load. Engine health verdicts are ignored for ten minutes."""

    verb = staticmethod(engine_verdicts.trust_again)
    rejection = "The engine is neither quarantined nor returning, so there is nothing to override."


class EngineVerdictEnd(_Judgement):
    """End a person's quarantine or trust early, so that the automation judges the engine again."""

    verb = staticmethod(engine_verdicts.end_verdict)
    rejection = "No override is active for the engine; its state comes from engine health."
