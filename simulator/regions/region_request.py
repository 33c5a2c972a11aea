"""One request between its client, gateways and an engine."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.regions.prompt import Prompt, PromptSegment


@dataclass(slots=True, eq=False)
class RegionRequest:
    """A client's request and its progress so far (times in seconds)."""

    prompt: Prompt
    output: PromptSegment
    """The response, as the segment that it becomes in later prompts."""
    session_key: int
    region: str
    """The client's region."""
    position: int = 0
    """The request's position in the client's program."""
    client: int = 0
    request_id: str = ""
    tenant: str = ""
    sent_s: float = 0.0
    entry_region: str = ""
    """The region of the first gateway."""
    hops: int = 0
    allowed_by: str = ""
    """The sovereignty rule that allowed the request's hop to another region."""
    way_back_s: float = 0.0
    """Delay of a response from the engine to the client."""
    served_region: str = ""
    admitted_s: float | None = None
    cached_tokens: int = 0
    first_token_s: float | None = None
    """When the client receives the first token."""
    ended_s: float | None = None
    """When the client receives the end of the response."""

    @property
    def whole(self) -> Prompt:
        """The prompt and the response."""
        return self.prompt.then(self.output)
