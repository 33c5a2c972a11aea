"""`/api/v1/engines/…/health`, and the verbs by which a person judges an engine."""

from __future__ import annotations

from collections.abc import Callable

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.automation import engine_trust
from controlplane.automation.api.automation_shape import EngineHealthShape
from controlplane.automation.models.engine_health import EngineHealth, HealthState
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.visibility import visible_engines
from controlplane.platform.api.base import ApiView, by_method, taken_why
from controlplane.platform.api.problem import ProblemError
from controlplane.platform.api.strict_fields import Change


class _OfEngine(ApiView):
    noun = "engines"
    shape = EngineHealthShape

    def engine(self, engine_id: str) -> Engine:
        """Return the engine, if the actor may see it."""
        found: Engine = visible_engines(self.actor).select_related("pool", "health").get(engine_id=engine_id)
        return found

    def standing(self, engine_id: str) -> Response:
        """Answer with the engine's health; one that was never judged is healthy since it was registered."""
        engine = self.engine(engine_id)
        stored = getattr(engine, "health", None)
        return self.show(stored or EngineHealth(engine=engine, state=HealthState.HEALTHY, since=engine.registered_at))


class OneEngineHealth(_OfEngine):
    """The health of one engine, as the automation or a person holds it."""

    def get(self, request: Request, *, engine_id: str) -> Response:
        """Return state, reason and since when; an engine that was never judged is healthy since it was registered."""
        return self.standing(engine_id)


class _Judgement(_OfEngine):
    bodies = by_method(POST=Change)

    def judge(self, engine_id: str, verb: Callable[..., bool], refusal: str = "") -> Response:
        """Carry out a verb of controlplane.automation.engine_trust; 409 with `refusal` where it changes nothing."""
        engine, body = self.engine(engine_id), self.body()
        if not verb(engine, actor=self.actor, at=timezone.now(), why=taken_why(body)) and refusal:
            raise ProblemError(409, refusal)
        return self.standing(engine_id)


class EngineQuarantine(_Judgement):
    """A person's quarantine."""

    def post(self, request: Request, *, engine_id: str) -> Response:
        """Let the engine get no new work until a person trusts it again or ends the verdict."""
        return self.judge(engine_id, engine_trust.quarantine)


class EngineTrust(_Judgement):
    """A person's trust."""

    def post(self, request: Request, *, engine_id: str) -> Response:
        """Give a quarantined or returning engine its whole load; for ten minutes no verdict of engine health counts."""
        refusal = "The engine is neither quarantined nor returning, so there is nothing to override."
        return self.judge(engine_id, engine_trust.trust_again, refusal)


class EngineVerdictEnd(_Judgement):
    """The end of a person's verdict."""

    def post(self, request: Request, *, engine_id: str) -> Response:
        """End a quarantine by hand, or trust, before its time: engine health judges the engine again."""
        refusal = "No override is active for the engine; its state comes from engine health."
        return self.judge(engine_id, engine_trust.end_verdict, refusal)
