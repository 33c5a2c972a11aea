"""Schemas of the custom resources that the chart and its examples use.

Written by hand from the published types: ServiceMonitor and PrometheusRule (Prometheus Operator v1), HTTPRoute (Gateway
API v1), InferencePool (Gateway API Inference Extension v1), DestinationRule (Istio v1), and ScaledObject (KEDA
v1alpha1). They have only the fields in use, and reject all others, so a misspelled field fails. kubernetes-validate
knows no custom resources.
"""

from __future__ import annotations

from typing import Any

_TEXT = {"type": "string", "minLength": 1}
_PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}


def _object(*required: str, **fields: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": fields}


def _many(item: Any, least: int = 1, most: int = 64) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": least, "maxItems": most}


def _one_of(*words: str) -> dict[str, Any]:
    return {"enum": list(words)}


_EXPRESSION = _object("key", "operator", key=_TEXT, operator=_one_of("In", "NotIn"), values=_many(_TEXT))
_SERVICE_MONITOR = _object(
    "selector",
    "endpoints",
    selector=_object(matchLabels=_STRINGS, matchExpressions=_many(_EXPRESSION)),
    endpoints=_many(
        _object(
            "port",
            port=_TEXT,
            path={"type": "string", "pattern": "^/"},
            interval={"type": "string", "pattern": r"^([0-9]+(ms|s|m|h))+$"},
            authorization=_object(type=_one_of("Bearer"), credentials=_object("name", "key", name=_TEXT, key=_TEXT)),
            relabelings=_many(
                _object(targetLabel=_TEXT, replacement=_TEXT, sourceLabels=_many({"pattern": "^[a-zA-Z_]+$"}))
            ),
        )
    ),
)
_ALERT = _object(
    "alert",
    "expr",
    alert=_TEXT,
    expr=_TEXT,
    **{"for": {"type": "string", "pattern": r"^[0-9]+(s|m|h)$"}},
    labels=_STRINGS,
    annotations=_STRINGS,
)
_PROMETHEUS_RULE = _object("groups", groups=_many(_object("name", "rules", name=_TEXT, rules=_many(_ALERT))))
_MATCH = _object("path", path=_object("type", "value", type=_one_of("PathPrefix", "Exact"), value={"pattern": "^/"}))
_BACKEND = _object("name", group=_TEXT, kind=_TEXT, name=_TEXT, port=_PORT)
_HTTP_ROUTE = _object(
    "parentRefs",
    "rules",
    parentRefs=_many(_object("name", name=_TEXT, namespace=_TEXT, sectionName=_TEXT), most=32),
    hostnames=_many(_TEXT, least=0, most=16),
    # The API's limit was eight matches a rule before version 1.3.
    rules=_many(_object("backendRefs", matches=_many(_MATCH, most=8), backendRefs=_many(_BACKEND)), most=16),
)
_INFERENCE_POOL = _object(
    "selector",
    "targetPorts",
    "endpointPickerRef",
    selector=_object("matchLabels", matchLabels={**_STRINGS, "minProperties": 1}),
    targetPorts=_many(_object("number", number=_PORT), most=8),
    endpointPickerRef=_object(
        "name",
        "port",
        name=_TEXT,
        port=_object("number", number=_PORT),
        failureMode=_one_of("FailOpen", "FailClose"),
    ),
)
_DESTINATION_RULE = _object(
    "host",
    host=_TEXT,
    trafficPolicy=_object(
        tls=_object("mode", mode=_one_of("DISABLE", "SIMPLE", "MUTUAL"), insecureSkipVerify={"type": "boolean"})
    ),
)
_SCALED_OBJECT = _object(
    "scaleTargetRef",
    "triggers",
    scaleTargetRef=_object("name", apiVersion=_TEXT, kind=_TEXT, name=_TEXT),
    pollingInterval={"type": "integer", "minimum": 1},
    minReplicaCount={"type": "integer", "minimum": 0},
    maxReplicaCount={"type": "integer", "minimum": 1},
    advanced=_object(horizontalPodAutoscalerConfig=_object(behavior={"type": "object"})),
    triggers=_many(
        _object(
            "type",
            "metadata",
            type=_one_of("prometheus"),
            metricType=_one_of("AverageValue", "Value"),
            # Every value is a string, numbers and booleans, too.
            metadata=_object(
                "serverAddress",
                "query",
                "threshold",
                serverAddress={"type": "string", "pattern": "^https?://"},
                query=_TEXT,
                threshold={"type": "string", "pattern": r"^[0-9.]+$"},
                ignoreNullValues=_one_of("true", "false"),
            ),
        )
    ),
)
SPECS = {
    ("monitoring.coreos.com/v1", "ServiceMonitor"): _SERVICE_MONITOR,
    ("monitoring.coreos.com/v1", "PrometheusRule"): _PROMETHEUS_RULE,
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): _HTTP_ROUTE,
    ("inference.networking.k8s.io/v1", "InferencePool"): _INFERENCE_POOL,
    ("networking.istio.io/v1", "DestinationRule"): _DESTINATION_RULE,
    ("keda.sh/v1alpha1", "ScaledObject"): _SCALED_OBJECT,
}
METADATA = _object(
    "name", "namespace", name={"pattern": r"^[a-z0-9][a-z0-9.-]{0,62}$"}, namespace=_TEXT, labels=_STRINGS
)


def schema_of(made: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema of a custom resource, None for a kind of Kubernetes itself."""
    spec = SPECS.get((made["apiVersion"], made["kind"]))
    if spec is None:
        return None
    return _object("apiVersion", "kind", "metadata", "spec", apiVersion={}, kind={}, metadata=METADATA, spec=spec)
