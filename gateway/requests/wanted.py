"""What a caller asks for, before its pool decides what it gets."""

from __future__ import annotations

import msgspec

from gateway.contracts.hop import Hop


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """What a caller asks for, through any API."""

    request_id: str
    tenant_id: str
    arrived_s: float
    ttft_slo_s: float | None = None
    """None: the pool's own."""
    max_output_tokens: int = 0
    session_id: str = ""
    priority: int | None = None
    """None: its class's."""
    tbt_slo_s: float | None = None
    slo_class: str = ""
    """The class that the request names."""
    key_class: str = ""
    """The class of its API key."""
    tracked: bool = True
    """Somebody will tell what becomes of it."""
    proxied: bool = False
    """This gateway forwards it."""
    reporter: str = ""
    """The tenant, where what is known of the request will be its word alone; empty: it is believed."""
    agent: str = ""
    """The agent that asks, and the workflow that it is part of; empty: it names none."""
    workflow_id: str = ""
    sequences: int = 1
    """Answers that are decoded for the prompt; 0: the prompt is all there is to compute."""
    hop: Hop | None = None
    """It came from the region of its first contact, or goes on in a pool of another region."""
