from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from planning.documents.health_document import HealthDocument
from planning.facts.peer_speeds import Peers, PeerSpeeds
from tests.planning.pools import engine


@given(st.lists(st.one_of(st.none(), st.floats(0, 100)), min_size=1, max_size=12))
def test_the_peer_speed_is_the_median_of_all_others(values: list[float | None]) -> None:
    engines = [engine(f"e-{at}", slowness=value, slowness_samples=9) for at, value in enumerate(values)]
    speeds = PeerSpeeds(engines, HealthDocument())
    for at, one in enumerate(engines):
        others = [value for other, value in enumerate(values) if other != at and value is not None]
        assert speeds.peers_of(one).slowness == (median(others) if len(others) >= 2 else None)


def test_engines_with_too_few_samples_are_not_peers() -> None:
    engines = [engine(f"e-{at}", slowness=1.0, slowness_samples=1, tpot_s=0.1, tpot_samples=1) for at in range(5)]
    assert PeerSpeeds(engines, HealthDocument()).peers_of(engines[0]) == Peers(None, None)
