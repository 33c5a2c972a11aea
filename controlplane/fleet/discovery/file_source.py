"""Discovers the engines listed in a file, in the format of the Engines page's import."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from controlplane.fleet.discovery.found_engine import DiscoveryOutageError, FoundEngine
from controlplane.fleet.discovery.setting import DiscoverySource
from controlplane.fleet.engine_paste import (
    MAX_BYTES,
    UnreadablePasteError,
    decode_upload,
    parse_lines,
    split_lines,
)
from controlplane.fleet.engine_url import RejectedUrlError, normal_url


def engines_of_file(source: DiscoverySource) -> list[FoundEngine]:
    """Return the listed engines. Raises DiscoveryOutageError if a line is unreadable or no engine is listed."""
    try:
        with Path(source.location).open("rb") as file:
            lines = parse_lines(split_lines(decode_upload(file.read(MAX_BYTES + 1))))
    except OSError as error:
        raise DiscoveryOutageError(f"{source.location} cannot be read: {error.strerror}") from error
    except UnreadablePasteError as error:
        raise DiscoveryOutageError(f"{source.location}: {error}") from error
    # It may be one that is being written, so it removes no engine.
    if not lines:
        raise DiscoveryOutageError(f"{source.location} lists no engine")
    engines = []
    for line in lines:
        if line.problems or line.engine is None:
            raise DiscoveryOutageError(f"{source.location}, line {line.number}: {' '.join(line.problems)}")
        if line.engine.get("pool", source.pool) != source.pool:
            raise DiscoveryOutageError(f"{source.location}, line {line.number}: the file is for pool {source.pool}")
        try:
            engines.append(_as_engine(line.engine))
        except RejectedUrlError as error:
            raise DiscoveryOutageError(f"{source.location}, line {line.number}: {error}") from error
    return engines


def _as_engine(engine: Mapping[str, Any]) -> FoundEngine:
    fields = {name: value for name, value in engine.items() if name not in ("name", "url", "pool")}
    return FoundEngine(engine["name"], normal_url(engine["url"]), fields)
