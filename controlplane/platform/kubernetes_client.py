"""The Kubernetes cluster of this installation: from the kubeconfig or, without one, the cluster it runs in."""

from __future__ import annotations

from kubernetes import client, config
from kubernetes.config.config_exception import ConfigException


class NoClusterError(Exception):
    """Neither a kubeconfig nor a pod's service account names a cluster."""


def api_client(context: str = "") -> client.ApiClient:
    """Return a client for a context of the kubeconfig (empty: the current one). Raises NoClusterError."""
    loaded = client.Configuration()
    # The caller retries by itself; a silent server would hold its job for four time-outs.
    loaded.retries = False
    try:
        return config.new_client_from_config(context=context or None, client_configuration=loaded)
    except ConfigException:
        pass
    try:
        config.load_incluster_config(client_configuration=loaded)
    except ConfigException as error:
        raise NoClusterError("No kubeconfig and no service account of this pod.") from error
    return client.ApiClient(loaded)
