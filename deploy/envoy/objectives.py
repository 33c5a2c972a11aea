"""Priorities of InferenceObjectives, watched in both API groups."""

from __future__ import annotations

import msgspec
from kubernetes import client

from controlplane.platform.kubernetes_client import NoClusterError, api_client
from controlplane.platform.kubernetes_watch import ListWatch, WatchOutageError
from deploy.envoy.certificate import PickerSettingError

GROUPS = ("llm-d.ai/v1alpha2", "inference.networking.x-k8s.io/v1alpha2")
"""API groups and versions. If both have an objective of a name, the first counts."""
_MOST, _LEAST = -(2**31), 2**31 - 1
"""Range of priorities in requests to Headway."""


class _PoolRef(msgspec.Struct):
    name: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    pool_ref: _PoolRef = msgspec.field(default_factory=_PoolRef)
    priority: int | None = None


class _Objective(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decode = msgspec.json.Decoder(_Objective).decode


class InferenceObjectives:
    """The objectives of one InferencePool. Its watches run in threads."""

    def __init__(self, connection: client.ApiClient, namespace: str, pool: str) -> None:
        """Start to watch."""
        self._pool = pool
        paths = (f"/apis/{group}/namespaces/{namespace}/inferenceobjectives" for group in GROUPS)
        self._watches = [ListWatch(connection, path, self._kept) for path in paths]
        for watch in self._watches:
            watch.start()

    def priority(self, name: str) -> int | None:
        """Return an objective's priority in Headway's order (lower is more urgent), None if it is unknown.

        While Kubernetes does not answer, the last known objectives count.
        """
        return next((watch.kept[name] for watch in self._watches if name in watch.kept), None)

    def problem(self, timeout_s: float = 0.0) -> str:
        """Return why the objectives are not known now, empty if they are."""
        try:
            for watch in self._watches:
                watch.values(timeout_s)
        except WatchOutageError as error:
            return str(error)
        return ""

    def close(self) -> None:
        """End the watches."""
        for watch in self._watches:
            watch.stop()

    def _kept(self, raw: msgspec.Raw) -> int | None:
        spec = _decode(raw).spec
        if spec.pool_ref.name != self._pool:
            return None
        # In Kubernetes higher is more urgent, and none is 0.
        return max(_MOST, min(_LEAST, -(spec.priority or 0)))


def objectives_of(namespace: str, pool: str) -> InferenceObjectives:
    """Watch the objectives of an InferencePool in this process's cluster. Raises PickerSettingError."""
    try:
        return InferenceObjectives(api_client(), namespace, pool)
    except NoClusterError as error:
        raise PickerSettingError(f"--objectives: {error}") from error
