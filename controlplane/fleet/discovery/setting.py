"""HEADWAY_DISCOVERY: the discovery sources of pools. Needs no Django."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

FILE, DNS, SRV, KUBERNETES, INFERENCE_POOL = "file", "dns", "srv", "kubernetes", "inferencepool"
_FORMS = (
    "POOL=file:///path, POOL=dns://host:port, POOL=srv://_service._tcp.name, "
    "POOL=kubernetes://namespace/label=value:port or POOL=inferencepool://namespace/name"
)
_SLUG = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SERVICE = re.compile(r"_[A-Za-z0-9-]{1,15}\._tcp(\.[A-Za-z0-9_-]{1,63}){1,20}\.?")
MAX_SOURCES = 100


@dataclass(frozen=True, slots=True)
class DiscoverySource:
    """One discovery source of a pool's engines."""

    pool: str
    kind: str
    """FILE, DNS, SRV, KUBERNETES, or INFERENCE_POOL."""
    location: str
    """Path, host, or namespace."""
    what: str = ""
    """Label selector, or name of the InferencePool."""
    port: int = 0

    @property
    def lists_all(self) -> bool:
        """Return whether each answer lists all engines, because the source is watched.

        DNS may answer with a part, and a file may be incomplete.
        """
        return self.kind in (KUBERNETES, INFERENCE_POOL)

    @property
    def name(self) -> str:
        """Return the source as configured, without its pool. Engines store it as their source."""
        if self.kind == DNS:
            return f"dns://{self.location}:{self.port}"
        if self.kind in (FILE, SRV):
            return f"{self.kind}://{self.location}"
        return f"{self.kind}://{self.location}/{self.what}" + (f":{self.port}" if self.port else "")


def parse_discovery(text: str) -> tuple[DiscoverySource, ...]:
    """Parse the setting, a list of sources separated by spaces. Raises ValueError with an explanation."""
    sources = tuple(_source(word) for word in text.split())
    names = [source.name for source in sources]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise ValueError(f"{twice} is named twice")
    if len(sources) > MAX_SOURCES:
        raise ValueError(f"{len(sources)} sources are more than {MAX_SOURCES}")
    return sources


def _source(word: str) -> DiscoverySource:
    pool, _, address = word.partition("=")
    kind, _, rest = address.partition("://")
    if not _SLUG.fullmatch(pool) or not rest or len(address) > 200:
        raise ValueError(f"{word} is not one of {_FORMS}")
    if kind == FILE and rest.startswith("/"):
        return DiscoverySource(pool, FILE, rest)
    if kind == DNS:
        parts = urlsplit(address)
        if parts.hostname and parts.port and not parts.path:
            return DiscoverySource(pool, DNS, parts.hostname, port=parts.port)
    if kind == SRV and _SERVICE.fullmatch(rest):
        return DiscoverySource(pool, SRV, rest)
    if kind in (KUBERNETES, INFERENCE_POOL):
        namespace, _, what = rest.partition("/")
        if kind == INFERENCE_POOL and namespace and _SLUG.fullmatch(what):
            return DiscoverySource(pool, kind, namespace, what)
        selector, _, port = what.rpartition(":")
        if kind == KUBERNETES and namespace and selector and port.isdigit() and 0 < int(port) < 65_536:
            return DiscoverySource(pool, kind, namespace, selector, int(port))
    raise ValueError(f"{word} is not one of {_FORMS}")
