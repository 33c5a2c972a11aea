"""One request on its way through balancers and an engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulator.regions.prompt import Prompt, PromptSegment


@dataclass(slots=True, eq=False)
class RegionRequest:
    """What a client asks, and what has become of it so far (times in seconds)."""

    prompt: Prompt
    output: PromptSegment
    """The answer, as the segment that it will be in later prompts."""
    session_key: int
    region: str
    """Where the client is."""
    place: int = 0
    """Its place in the client's program."""
    client: int = 0
    tenant: str = ""
    sent_s: float = 0.0
    queued_s: float = 0.0
    """When it reached the balancer that it is at."""
    hops: int = 0
    allowed_by: str = ""
    """The sovereignty rule that let it go to another region."""
    way_back_s: float = 0.0
    """How long an answer takes from the engine to the client."""
    served_region: str = ""
    admitted_s: float | None = None
    cached_tokens: int = 0
    first_token_s: float | None = None
    """When the client sees the first token."""
    ended_s: float | None = None
    """When the client has the whole answer."""
    trail: list[str] = field(default_factory=list)
    """Reasons of the choices made for it."""
