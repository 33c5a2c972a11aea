"""Discovers engines in a Kubernetes cluster: pods of a label selector or of a Gateway API InferencePool.

Each scan lists all pods again, from the API server's cache. A list does not depend on earlier state, so a missed event
cannot leave a stale pod.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from controlplane.fleet.discovery.found_engine import DiscoveryOutageError, FoundEngine, Presence, plain_name
from controlplane.fleet.discovery.setting import INFERENCE_POOL, DiscoverySource
from controlplane.fleet.engine_url import bracketed
from controlplane.platform.kubernetes_client import NoClusterError, api_client
from routing.values.prepared_struct import prepared

TIMEOUT_S = 5.0
_GROUPS = (("inference.networking.k8s.io", "v1"), ("inference.networking.x-k8s.io", "v1alpha2"))
_MISSING = 404


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    deletion_timestamp: str | None = None


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    pod_ip: str | None = msgspec.field(name="podIP", default=None)
    conditions: list[_Condition] = []


class _Pod(msgspec.Struct):
    metadata: _Metadata
    status: _Status


class _Pods(msgspec.Struct):
    items: list[_Pod] | None = None


def engines_of_cluster(source: DiscoverySource, connection: client.ApiClient | None = None) -> list[FoundEngine]:
    """Return the running pods. Raises DiscoveryOutageError if the cluster does not respond."""
    try:
        connection = connection or _connection()
        selector, port = source.what, source.port
        if source.kind == INFERENCE_POOL:
            selector, port = _pool_of(source, connection)
        # The client's own decoding makes hundreds of objects per pod.
        answer = client.CoreV1Api(connection).list_namespaced_pod(
            source.location,
            label_selector=selector,
            # From the API server's cache: a consistent read of all pods every few seconds would be a load on etcd.
            resource_version="0",
            _request_timeout=TIMEOUT_S,
            _preload_content=False,
        )
        pods = msgspec.json.decode(answer.data, type=prepared(_Pods)).items or []
    except NoClusterError as error:
        raise DiscoveryOutageError(str(error)) from error
    except ApiException as error:
        raise DiscoveryOutageError(f"Kubernetes answered {error.status} ({error.reason})") from error
    except (HTTPError, OSError) as error:
        raise DiscoveryOutageError(f"Kubernetes did not answer ({type(error).__name__})") from error
    except msgspec.DecodeError as error:
        raise DiscoveryOutageError("Kubernetes returned an unexpected answer") from error
    # An empty list is believed, unlike that of a file or a name: a scale of zero has one.
    return [engine for pod in pods if (engine := _as_engine(pod, port)) is not None]


@cache
def _connection() -> client.ApiClient:
    return api_client()


def _pool_of(source: DiscoverySource, connection: client.ApiClient) -> tuple[str, int]:
    """Return the label selector and port of the InferencePool, using the API version that the cluster serves."""
    spec = _spec(source, client.CustomObjectsApi(connection))
    labels = spec.get("selector") or {}
    labels = labels.get("matchLabels", labels)
    ports = [item.get("number") for item in spec.get("targetPorts") or ()] or [spec.get("targetPortNumber")]
    if not labels or not isinstance(ports[0], int):
        raise DiscoveryOutageError(f"InferencePool {source.what} has no selector or no target port")
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items())), ports[0]


def _spec(source: DiscoverySource, objects: client.CustomObjectsApi) -> dict[str, Any]:
    for group, version in _GROUPS:
        try:
            answer = objects.get_namespaced_custom_object(
                group, version, source.location, "inferencepools", source.what, _request_timeout=TIMEOUT_S
            )
        except ApiException as error:
            if error.status != _MISSING:
                raise
        else:
            return dict(answer.get("spec") or {})
    raise DiscoveryOutageError(f"There is no InferencePool {source.what} in namespace {source.location}")


def _as_engine(pod: _Pod, port: int) -> FoundEngine | None:
    """Return the pod as an engine; None if the pod has no address yet or has ended."""
    address, phase = pod.status.pod_ip, pod.status.phase
    if not address or phase in ("Succeeded", "Failed"):
        return None
    conditions = {condition.type: condition.status for condition in pod.status.conditions}
    presence = Presence.READY if conditions.get("Ready") == "True" else Presence.WAITING
    if pod.metadata.deletion_timestamp is not None:
        presence = Presence.LEAVING
    return FoundEngine(plain_name(pod.metadata.name), f"http://{bracketed(address)}:{port}", presence=presence)
