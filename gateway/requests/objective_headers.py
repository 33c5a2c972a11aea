"""Objectives in a request's headers, under our names and those of the ecosystem."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway.server.http.json_body import BadBodyError

TTFT_HEADERS = (b"x-headway-ttft-slo-ms", b"x-llm-d-slo-ttft-ms", b"x-sgl-ttft-slo-ms")
TPOT_HEADERS = (b"x-headway-tpot-slo-ms", b"x-llm-d-slo-tpot-ms")
CLASS_HEADER = b"x-headway-slo-class"
_LONGEST_TTFT_MS = 3_600_000
_LONGEST_TPOT_MS = 60_000
_MAX_DIGITS = 12
_CLASS = re.compile(rb"[a-z0-9][a-z0-9_.-]{0,31}").fullmatch


def ttft_slo_s(headers: Mapping[bytes, bytes]) -> float | None:
    """Return the TTFT objective in seconds, None if no header sets one; raise BadBodyError."""
    return _seconds(headers, TTFT_HEADERS, _LONGEST_TTFT_MS)


def tpot_slo_s(headers: Mapping[bytes, bytes]) -> float | None:
    """Return the TPOT objective in seconds, None if no header sets one; raise BadBodyError."""
    return _seconds(headers, TPOT_HEADERS, _LONGEST_TPOT_MS)


def slo_class(headers: Mapping[bytes, bytes]) -> str:
    """Return the named SLO class, empty if none; raise BadBodyError for an invalid class name."""
    value = headers.get(CLASS_HEADER)
    if value is None:
        return ""
    if _CLASS(value) is None:
        shown = CLASS_HEADER.decode()
        message = f"Send {shown} as the name of an SLO class: up to 32 of a-z, 0-9, '.', '_' and '-'."
        raise BadBodyError("bad_header", message, param=shown)
    return value.decode()


def _seconds(headers: Mapping[bytes, bytes], names: tuple[bytes, ...], longest_ms: int) -> float | None:
    for name in names:
        value = headers.get(name)
        if value is not None:
            # The length comes first: Python rejects to read a number of more than 4,300 digits.
            if len(value) > _MAX_DIGITS or not value.isdigit() or not 1 <= int(value) <= longest_ms:
                message = f"Send {name.decode()} as whole milliseconds, 1 to {longest_ms}."
                raise BadBodyError("bad_header", message, param=name.decode())
            return int(value) / 1000
    return None
