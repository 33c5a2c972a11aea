"""Small hand-made views for region rules."""

from __future__ import annotations

from routing.regions.region_view import PeerLoad, RegionEngineLoad, RegionView


def engine(
    number: int, *, matched: int = 0, in_flight: int = 0, room: bool = True, indexed: int = 0
) -> RegionEngineLoad:
    """Return one local engine."""
    return RegionEngineLoad(f"e-{number}", matched, in_flight, room, indexed)


def peer(region: str, *, matched: int = 0, load: float = 0.0, room: bool = True, one_way: float = 0.05) -> PeerLoad:
    """Return one other region."""
    return PeerLoad(region, matched, room, load, one_way)


def view(
    *engines: RegionEngineLoad,
    peers: tuple[PeerLoad, ...] = (),
    prompt: int = 1000,
    waited: float = 0.0,
    load: float = 0.0,
    key: int = 1,
    turn: int = 0,
) -> RegionView:
    """Return the view of one request."""
    return RegionView(prompt, key, waited, turn, load, engines, peers)
