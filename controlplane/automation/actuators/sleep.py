"""Puts engines to sleep and wakes them, by vLLM's sleep mode. Their processes and weights stay on the host.

vLLM has these paths only with `--enable-sleep-mode` and VLLM_SERVER_DEV_MODE=1. At level 1, weights move to host memory
and the KV cache is discarded. Both calls return when they are in effect, and repeating them is harmless.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable
from urllib.parse import urlsplit

from django.conf import settings
from typing_extensions import override

from controlplane.automation.actuators.actuator import (
    ActionProgress,
    Actuator,
    ActuatorAnswer,
    ActuatorError,
    NewEngine,
    RejectedActionError,
)
from controlplane.automation.models.engine_action import OPEN_STATES, ActionKind, EngineAction
from controlplane.fleet.engine_addressing import connection_to, key_variable
from controlplane.fleet.models.engine import DesiredState, Engine
from gateway.base.engine_api_keys import engine_key

CALL_S = 8.0
"""Timeout of one call, shorter than a claim of an action."""
SLEEP, WAKE_UP = "/sleep?level=1", "/wake_up"

Post = Callable[[Engine, str], int]
"""(engine, path) → status; raises OSError and HTTPException."""


class SleepActuator(Actuator):
    """The registered engines of one pool, of which some sleep."""

    can_change_role = False
    keeps_engines = True

    def __init__(self, post: Post | None = None) -> None:
        self._post = post or post_to_engine

    @override
    def start(self, action: EngineAction) -> ActuatorAnswer:
        """Wake the engine that went to sleep last; its weights are the likeliest to be in memory."""
        asleep = Engine.objects.filter(pool=action.pool, role=action.role, desired_state=DesiredState.ASLEEP)
        engine = asleep.exclude(actions__state__in=OPEN_STATES).order_by("-actions__finished_at", "pk").first()
        if engine is None:
            if EngineAction.objects.filter(pool=action.pool, kind=ActionKind.STOP, state__in=OPEN_STATES).exists():
                raise ActuatorError("The engine is about to sleep and can be woken then.")
            raise RejectedActionError(f"No {action.role} engine of the pool is asleep.")
        self._call(engine, WAKE_UP)
        return ActuatorAnswer(
            ActionProgress.UNDER_WAY, f"{engine.name} wakes up", engine=NewEngine(engine.name, engine.url)
        )

    @override
    def undo(self, action: EngineAction) -> ActuatorAnswer:
        """Put an engine back to sleep that was woken and does not serve."""
        if action.engine is not None:
            self._call(action.engine, SLEEP)
        return ActuatorAnswer(ActionProgress.IN_EFFECT)

    @override
    def stop(self, action: EngineAction) -> ActuatorAnswer:
        """Put the drained engine to sleep."""
        if action.engine is not None:
            self._call(action.engine, SLEEP)
        return ActuatorAnswer(ActionProgress.IN_EFFECT, f"{action.engine_name} sleeps")

    @override
    def change_role(self, action: EngineAction) -> ActuatorAnswer:
        """Reject the action, because a process keeps its role."""
        raise RejectedActionError("A sleeping process keeps its role. Restart it in the other role by hand.")

    def _call(self, engine: Engine, path: str) -> None:
        if engine.rank is not None:
            raise RejectedActionError(f"{engine.name} is one rank of a process, whose ranks can only sleep together.")
        try:
            status = self._post(engine, path)
        except (OSError, http.client.HTTPException) as error:
            raise ActuatorError(f"{engine.name} did not answer {path} ({type(error).__name__}).") from error
        if status == 404:
            raise RejectedActionError(
                f"{engine.name} has no {path}: start vLLM with --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1."
            )
        if status != 200:
            raise ActuatorError(f"{engine.name} answered {path} with {status}.")


def post_to_engine(engine: Engine, path: str) -> int:
    """Send one POST without a body to the engine, with its API key, and return the status."""
    connection = connection_to(engine.connect_url, CALL_S)
    key = engine_key(key_variable(engine), settings.ENGINE_API_KEY)
    target = urlsplit(engine.connect_url).path.rstrip("/") + path
    try:
        connection.request("POST", target, headers={"Authorization": f"Bearer {key}"} if key else {})
        return connection.getresponse().status
    finally:
        connection.close()
