"""Starts and stops engines as replicas of a StatefulSet, through its scale subresource.

Replicas are numbered, and scaling down ends the highest number. Therefore an engine is named after its pod, and a
StatefulSet shrinks from its end. Each action stores its wanted scale before the patch and includes the resource version
that it read, so repeated or concurrent calls have one effect.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from typing_extensions import override
from urllib3.exceptions import HTTPError

from controlplane.automation.actuators.actuator import (
    ActionProgress,
    Actuator,
    ActuatorAnswer,
    ActuatorError,
    NewEngine,
    RejectedActionError,
)
from controlplane.automation.models.engine_action import OPEN_STATES, ActionKind, ActionState, EngineAction
from controlplane.fleet.actuator_settings import KubernetesSettings, filled
from controlplane.fleet.models.engine import Engine
from controlplane.platform.kubernetes_client import NoClusterError, api_client
from routing.values.counted import count

TIMEOUT_S = 5.0
WANTED = "replicas"


class KubernetesActuator(Actuator):
    """StatefulSets of one namespace, one per role."""

    can_change_role = False

    def __init__(self, settings: KubernetesSettings, apps: client.AppsV1Api | None = None) -> None:
        """Use the cluster of `apps`. None: use the cluster of the kubeconfig or of the pod's service account."""
        self._settings = settings
        self._given = apps

    @override
    def start(self, action: EngineAction) -> ActuatorAnswer:
        """Scale the role's StatefulSet up by one; the new pod's number names the engine."""
        name = self._set_of(action.role)
        if WANTED in action.actuator_state:
            ordinal = int(action.actuator_state[WANTED]) - 1
            self._scale(name, ordinal + 1, up=True)
            return ActuatorAnswer(
                ActionProgress.UNDER_WAY, f"pod {name}-{ordinal} starts", engine=self._engine(name, ordinal)
            )
        # Stored before the patch: a repetition, and other actions, must know the scale that this one wants.
        wanted = self._next_replicas(name, action)
        return ActuatorAnswer(
            ActionProgress.UNDER_WAY,
            f"StatefulSet {name} scales to {count(wanted, 'replica')}",
            actuator_state={WANTED: wanted},
        )

    @override
    def undo(self, action: EngineAction) -> ActuatorAnswer:
        """Remove the replica that this action added, if it is the last one and is not registered."""
        if WANTED not in action.actuator_state:
            return ActuatorAnswer(ActionProgress.IN_EFFECT)
        name, wanted = self._set_of(action.role), int(action.actuator_state[WANTED])
        pod, replicas = f"{name}-{wanted - 1}", self._read(name).spec.replicas or 0
        if replicas < wanted:
            return ActuatorAnswer(ActionProgress.IN_EFFECT, f"pod {pod} is gone")
        if Engine.objects.filter(pool=action.pool, name=pod).exclude(pk=action.engine_id).exists():
            return ActuatorAnswer(ActionProgress.IN_EFFECT, f"pod {pod} stays: it is registered")
        if replicas > wanted:
            if any(above > wanted for above in self._wanted_by_others(action, OPEN_STATES)):
                return ActuatorAnswer(
                    ActionProgress.UNDER_WAY,
                    f"pod {pod} can stop only after the pods above it, which are still starting",
                )
            return ActuatorAnswer(
                ActionProgress.IN_EFFECT, f"pod {pod} stays for the next start: {name}-{replicas - 1} is above it"
            )
        self._scale(name, wanted - 1, up=False)
        return ActuatorAnswer(ActionProgress.IN_EFFECT, f"StatefulSet {name} is back at {count(wanted - 1, 'replica')}")

    @override
    def stop(self, action: EngineAction) -> ActuatorAnswer:
        """Scale the engine's StatefulSet down by one if its pod is the last one; otherwise wait."""
        name, ordinal = self._pod_of(action)
        replicas = self._read(name).spec.replicas or 0
        if replicas <= ordinal:
            return ActuatorAnswer(ActionProgress.IN_EFFECT, f"pod {name}-{ordinal} is gone")
        if replicas > ordinal + 1:
            return ActuatorAnswer(
                ActionProgress.UNDER_WAY,
                f"StatefulSet {name} stops its last pod first: {name}-{replicas - 1} must stop before {name}-{ordinal}",
            )
        self._scale(name, ordinal, up=False)
        return ActuatorAnswer(ActionProgress.IN_EFFECT, f"StatefulSet {name} has {count(ordinal, 'replica')}")

    @override
    def change_role(self, action: EngineAction) -> ActuatorAnswer:
        """Reject the action, because a pod keeps the role of its StatefulSet."""
        raise RejectedActionError("A pod keeps the role of its StatefulSet. Stop it and start one of the other role.")

    def _next_replicas(self, name: str, action: EngineAction) -> int:
        """Return the scale for this action: that of a pod which an earlier failed start left, or one more replica."""
        replicas = self._read(name).spec.replicas or 0
        wanted = self._wanted_by_others(action, OPEN_STATES)
        registered = set(Engine.objects.filter(pool=action.pool).values_list("name", flat=True))
        # A failed start leaves its pod where others are above it (undo); the next start takes that pod.
        left = {
            wanted_by_other
            for wanted_by_other in self._wanted_by_others(action, (ActionState.FAILED,)) - wanted
            if wanted_by_other <= replicas and f"{name}-{wanted_by_other - 1}" not in registered
        }
        return min(left) if left else max([replicas, *wanted]) + 1

    def _wanted_by_others(self, action: EngineAction, states: Collection[str]) -> set[int]:
        """Return the scales requested by other starts of the action's role."""
        others = EngineAction.objects.filter(
            pool=action.pool, kind=ActionKind.START, role=action.role, state__in=states
        )
        states_kept = others.exclude(pk=action.pk).values_list("actuator_state", flat=True)
        return {int(item[WANTED]) for item in states_kept if WANTED in item}

    def _scale(self, name: str, replicas: int, *, up: bool) -> None:
        """Patch the scale unless it already has that value. Raise ActuatorError if it was changed meanwhile.

        A scale-down removes exactly one replica, so replicas that others added meanwhile remain.
        """
        scale = self._read(name)
        now = scale.spec.replicas or 0
        if (now >= replicas) if up else (now <= replicas):
            return
        if not up and now != replicas + 1:
            raise ActuatorError(f"StatefulSet {name} was scaled to {now} meanwhile.")
        # With the version that was read, the API server rejects the patch (409) if another one came first.
        body = {"metadata": {"resourceVersion": scale.metadata.resource_version}, "spec": {"replicas": replicas}}
        self._asked(
            self._apps().patch_namespaced_stateful_set_scale,
            name,
            self._settings.namespace,
            body,
            _request_timeout=TIMEOUT_S,
        )

    def _read(self, name: str) -> Any:
        return self._asked(
            self._apps().read_namespaced_stateful_set_scale,
            name,
            self._settings.namespace,
            _request_timeout=TIMEOUT_S,
        )

    def _asked(self, call: Any, *args: Any, **options: Any) -> Any:
        try:
            return call(*args, **options)
        except ApiException as error:
            said = f"Kubernetes answered {error.status} ({error.reason})."
            # None of these passes by itself; 409, 429 and 5xx may.
            if error.status in (400, 403, 404, 422):
                raise RejectedActionError(said) from error
            raise ActuatorError(said) from error
        except (HTTPError, OSError) as error:
            raise ActuatorError(f"Kubernetes did not answer ({type(error).__name__}).") from error

    def _apps(self) -> client.AppsV1Api:
        if self._given is None:
            try:
                self._given = client.AppsV1Api(api_client(self._settings.context))
            except NoClusterError as error:
                raise ActuatorError(str(error)) from error
        return self._given

    def _set_of(self, role: str) -> str:
        try:
            return self._settings.stateful_sets[role]
        except KeyError:
            raise RejectedActionError(f"The actuator settings have no StatefulSet for {role} engines.") from None

    def _pod_of(self, action: EngineAction) -> tuple[str, int]:
        """Return the StatefulSet and pod number of the action's engine, which is named after its pod."""
        name, _, ordinal = action.engine_name.rpartition("-")
        if name not in self._settings.stateful_sets.values() or not ordinal.isdigit():
            raise RejectedActionError(f"{action.engine_name} is not a pod of this pool's StatefulSets.")
        return name, int(ordinal)

    def _engine(self, name: str, ordinal: int) -> NewEngine:
        names = {
            "pod": f"{name}-{ordinal}",
            "set": name,
            "ordinal": str(ordinal),
            "namespace": self._settings.namespace,
        }
        return NewEngine(
            name=names["pod"],
            url=filled(self._settings.url, names),
            kv_events_endpoint=filled(self._settings.kv_events_endpoint, names),
        )
