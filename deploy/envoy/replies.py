"""Read and build ext_proc messages. Free of I/O and of the state of a request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from envoy.config.core.v3 import base_pb2 as core
from envoy.extensions.filters.http.ext_proc.v3.processing_mode_pb2 import ProcessingMode
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc
from google.protobuf.struct_pb2 import Struct

ENDPOINT = "x-gateway-destination-endpoint"
SUBSET = f"{ENDPOINT}-subset"
SERVED = f"{ENDPOINT}-served"
DROPPED = "x-llm-d-request-dropped-reason"
DUPLEX, BUFFERED, NONE = ProcessingMode.FULL_DUPLEX_STREAMED, ProcessingMode.BUFFERED, ProcessingMode.NONE
CHUNK = 62_000
"""Maximum bytes of a body per message, as in the reference implementation."""
_NAMESPACE, _SUBSET_NAMESPACE = "envoy.lb", "envoy.lb.subset_hint"
_FILTER, _SERVED_ATTRIBUTE = "envoy.filters.http.ext_proc", "upstream.address"
_REPLIES = {
    "headers": ext_proc.HeadersResponse,
    "body": ext_proc.BodyResponse,
    "trailers": ext_proc.TrailersResponse,
}

Reply: TypeAlias = Any
"""A ProcessingResponse; the generated message classes have no types."""


def headers_of(part: Any) -> dict[str, str]:
    """Return the headers of a message, with names in lower case."""
    # A HeaderValue has one of the two, never both.
    return {
        header.key.lower(): header.raw_value.decode("utf-8", "replace") or header.value
        for header in part.headers.headers
    }


def body_modes(message: Any) -> tuple[int, int]:
    """Return the modes of the request body and of the answer's body. A proxy that states none streams both."""
    if not message.HasField("protocol_config"):
        return DUPLEX, DUPLEX
    return message.protocol_config.request_body_mode, message.protocol_config.response_body_mode


def subset_of(message: Any) -> frozenset[str] | None:
    """Return the endpoints that the proxy allows, None if it allows all."""
    allowed = _metadata(message, _SUBSET_NAMESPACE, SUBSET)
    if allowed is None:
        return None
    return addresses(allowed) if isinstance(allowed, str) else frozenset(str(item) for item in allowed)


def addresses(text: str) -> frozenset[str]:
    """Return the endpoints of a comma-separated list."""
    return frozenset(item for part in text.split(",") if (item := part.strip()))


def served_by(message: Any) -> str:
    """Return the endpoint that served the request, as the proxy states it in metadata or an attribute; else empty."""
    stated = _metadata(message, _NAMESPACE, SERVED)
    if stated is None:
        stated = message.attributes[_FILTER].fields[_SERVED_ATTRIBUTE].string_value if message.attributes else ""
    return str(stated)


def endpoint_reply(
    endpoints: str, headers: Mapping[str, str], removed: Iterable[str], *, whole_body: bytes | None = None
) -> Reply:
    """Return the reply that names the endpoints, in the header and the metadata.

    It replies to the request's headers, or with `whole_body` to a body that the proxy has buffered.
    """
    metadata = Struct()
    metadata.update({_NAMESPACE: {ENDPOINT: endpoints}})
    mutation = _mutation({ENDPOINT: endpoints, **headers}, removed)
    # Envoy chooses a route before it calls the picker; the endpoint's header counts only for a new choice.
    common = ext_proc.CommonResponse(header_mutation=mutation, clear_route_cache=True)
    if whole_body is None:
        part = {"request_headers": ext_proc.HeadersResponse(response=common)}
    else:
        common.body_mutation.body = whole_body
        part = {"request_body": ext_proc.BodyResponse(response=common)}
    return ext_proc.ProcessingResponse(dynamic_metadata=metadata, **part)


def headers_reply(kind: str, headers: Mapping[str, str], removed: Iterable[str] = ()) -> Reply:
    """Return the reply to headers of this kind (request_headers, response_headers) with these changes."""
    common = ext_proc.CommonResponse(header_mutation=_mutation(headers, removed))
    return ext_proc.ProcessingResponse(**{kind: ext_proc.HeadersResponse(response=common)})


def unchanged(kind: str) -> Reply:
    """Return the reply that changes nothing to a part of this kind, such as request_trailers."""
    return ext_proc.ProcessingResponse(**{kind: _REPLIES[kind.partition("_")[2]]()})


def pieces(kind: str, body: bytes, *, ends: bool) -> Iterator[Reply]:
    """Yield a body as streamed messages of this kind. If no trailers follow, the last message ends the stream."""
    # An empty body needs a message, too, which ends the stream.
    for start in range(0, max(len(body), 1), CHUNK):
        last = ends and start + CHUNK >= len(body)
        piece = ext_proc.StreamedBodyResponse(body=body[start : start + CHUNK], end_of_stream=last)
        common = ext_proc.CommonResponse(body_mutation=ext_proc.BodyMutation(streamed_response=piece))
        yield ext_proc.ProcessingResponse(**{kind: ext_proc.BodyResponse(response=common)})


def immediate(status: int, body: bytes, headers: Mapping[str, str], details: str) -> Reply:
    """Return the reply that ends the request with this answer. `details` appears in the proxy's access log."""
    mutation = _mutation({"content-type": "application/json", **headers})
    return ext_proc.ProcessingResponse(
        immediate_response=ext_proc.ImmediateResponse(
            status={"code": status}, headers=mutation, body=body, details=details
        )
    )


def _mutation(headers: Mapping[str, str], removed: Iterable[str] = ()) -> Any:
    return ext_proc.HeaderMutation(
        set_headers=[
            core.HeaderValueOption(
                header=core.HeaderValue(key=name, raw_value=value.encode()),
                append_action=core.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
            )
            for name, value in headers.items()
        ],
        remove_headers=[name for name in removed if name not in headers],
    )


def _metadata(message: Any, namespace: str, key: str) -> Any:
    fields = message.metadata_context.filter_metadata.get(namespace)
    return fields[key] if fields is not None and key in fields else None
