"""Discovers engines in a Kubernetes cluster: pods of a label selector or of a Gateway API InferencePool.

Pods and InferencePools are watched. A watch mirrors the whole collection, so a scan needs no request, and each answer
lists all engines.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import cache, partial

import msgspec
from kubernetes import client

from controlplane.fleet.discovery.found_engine import DiscoveryOutageError, FoundEngine, Presence, plain_name
from controlplane.fleet.discovery.setting import INFERENCE_POOL, DiscoverySource
from controlplane.fleet.engine_url import bracketed
from controlplane.platform.jobs.wake import wake_now
from controlplane.platform.kubernetes_client import NoClusterError, api_client
from controlplane.platform.kubernetes_watch import ListWatch, ObjectMeta, WatchOutageError
from routing.values.prepared_struct import prepared

TIMEOUT_S = 5.0
"""Time for the first list of a source."""
WAKE_S = 0.5
"""Shortest time between two wake-ups of the job, so that a rollout of many pods is reconciled in a few scans."""
GROUPS = ("inference.networking.k8s.io/v1", "inference.networking.x-k8s.io/v1alpha2")
"""API groups and versions of InferencePools. The first that has the pool counts."""
ACTIVE_PORTS = ("llm-d.ai/active-ports", "inference.networking.k8s.io/active-ports")
"""Annotations of pods that serve only some of the pool's target ports; the second is the older one."""


class _Condition(msgspec.Struct):
    type: str
    status: str


class _PodStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    pod_ip: str | None = msgspec.field(name="podIP", default=None)
    conditions: list[_Condition] = []


class _Pod(msgspec.Struct):
    metadata: ObjectMeta
    status: _PodStatus


class _Port(msgspec.Struct):
    number: int


class _PoolSpec(msgspec.Struct, rename="camel"):
    selector: dict[str, str | dict[str, str]] = {}
    target_ports: list[_Port] = []
    target_port_number: int | None = None


class _InferencePool(msgspec.Struct):
    spec: _PoolSpec


class _Target(msgspec.Struct, frozen=True):
    """The label selector of an InferencePool and its target ports, one per data-parallel rank."""

    selector: str
    ports: tuple[int, ...]


class _Address(msgspec.Struct, frozen=True):
    """What is kept of a pod. `active` are the ports that it serves, None for all."""

    address: str
    presence: Presence
    active: frozenset[int] | None


class ClusterView:
    """The engines of one source. Mutable: the watch of the pods, which another selector replaces."""

    def __init__(
        self, source: DiscoverySource, connection: client.ApiClient, on_change: Callable[[], None] = lambda: None
    ) -> None:
        """Start to watch. `on_change` is called in threads of the watches, WAKE_S apart at least."""
        self._source = source
        self._connection = connection
        self._on_change = _Spaced(on_change)
        self._selector = source.what
        self._pools: list[ListWatch[_Target]] = []
        if source.kind == INFERENCE_POOL:
            field = f"metadata.name={source.what}"
            for group in GROUPS:
                path = f"/apis/{group}/namespaces/{source.location}/inferencepools"
                pool = ListWatch(connection, path, _target, on_change=self._on_change, fieldSelector=field)
                pool.start()
                self._pools.append(pool)
        self._pods = None if self._pools else self._watched(self._selector)

    def engines(self) -> list[FoundEngine]:
        """Return the running pods, one engine per port. Raises DiscoveryOutageError if the cluster does not answer."""
        try:
            target = self._target()
            if self._pods is None or target.selector != self._selector:
                if self._pods is not None:
                    self._pods.stop()
                self._selector, self._pods = target.selector, self._watched(target.selector)
            pods = self._pods.values(TIMEOUT_S)
        except WatchOutageError as error:
            raise DiscoveryOutageError(str(error)) from error
        # An empty list is believed, unlike that of a file or a name: a scale of zero has one.
        return [engine for name, pod in sorted(pods.items()) for engine in _engines(name, pod, target.ports)]

    def close(self) -> None:
        """End the watches."""
        for pool in self._pools:
            pool.stop()
        if self._pods is not None:
            self._pods.stop()

    def _target(self) -> _Target:
        if not self._pools:
            return _Target(self._selector, (self._source.port,))
        name = self._source.what
        targets = [target for pool in self._pools if (target := pool.values(TIMEOUT_S).get(name)) is not None]
        if not targets:
            raise WatchOutageError(f"There is no InferencePool {name} in namespace {self._source.location}")
        if not targets[0].selector or not targets[0].ports:
            raise WatchOutageError(f"InferencePool {name} has no selector or no target port")
        return targets[0]

    def _watched(self, selector: str) -> ListWatch[_Address]:
        path = f"/api/v1/namespaces/{self._source.location}/pods"
        watch = ListWatch(self._connection, path, _address, on_change=self._on_change, labelSelector=selector)
        watch.start()
        return watch


_views: dict[str, ClusterView] = {}
_lock = threading.Lock()


def engines_of_cluster(source: DiscoverySource) -> list[FoundEngine]:
    """Return the running pods. Raises DiscoveryOutageError if the cluster does not respond."""
    with _lock:
        if source.name not in _views:
            try:
                connection = _connection()
            except NoClusterError as error:
                raise DiscoveryOutageError(str(error)) from error
            _views[source.name] = ClusterView(source, connection, partial(wake_now, ["watched_discovery"]))
        view = _views[source.name]
    return view.engines()


@cache
def _connection() -> client.ApiClient:
    return api_client()


def _target(raw: msgspec.Raw) -> _Target:
    spec = msgspec.json.decode(raw, type=prepared(_InferencePool)).spec
    labels = spec.selector.get("matchLabels", spec.selector)
    pairs = sorted(labels.items()) if isinstance(labels, dict) else []
    ports = tuple(port.number for port in spec.target_ports) or (spec.target_port_number,)
    return _Target(",".join(f"{name}={value}" for name, value in pairs), tuple(port for port in ports if port))


def _address(raw: msgspec.Raw) -> _Address | None:
    """Return the pod's address; None if the pod has no address yet or has ended."""
    pod = msgspec.json.decode(raw, type=prepared(_Pod))
    if not pod.status.pod_ip or pod.status.phase in ("Succeeded", "Failed"):
        return None
    conditions = {condition.type: condition.status for condition in pod.status.conditions}
    presence = Presence.READY if conditions.get("Ready") == "True" else Presence.WAITING
    if pod.metadata.deletion_timestamp is not None:
        presence = Presence.LEAVING
    annotations = pod.metadata.annotations or {}
    stated = next((annotations[name] for name in ACTIVE_PORTS if name in annotations), None)
    active = None if stated is None else frozenset(int(port) for port in stated.split(",") if port.strip().isdigit())
    return _Address(pod.status.pod_ip, presence, active)


def _engines(pod: str, address: _Address, ports: tuple[int, ...]) -> Iterator[FoundEngine]:
    """Yield an engine per port. The names are those of llm-d if there are several."""
    for rank, port in enumerate(ports):
        if address.active is None or port in address.active:
            name = pod if len(ports) == 1 else f"{pod}-rank-{rank}"
            url = f"http://{bracketed(address.address)}:{port}"
            yield FoundEngine(plain_name(name), url, presence=address.presence)


class _Spaced:
    """Calls a function after each call of its own, but WAKE_S apart. Mutable: the time of the next call."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._next_s = 0.0

    def __call__(self) -> None:
        now = time.monotonic()
        with self._lock:
            if now < self._next_s - WAKE_S:
                # A call is already waiting, and will see this change, too.
                return
            pause_s, self._next_s = max(0.0, self._next_s - now), max(now, self._next_s) + WAKE_S
        if pause_s:
            timer = threading.Timer(pause_s, self._call)
            timer.daemon = True
            timer.start()
        else:
            self._call()
