import pytest

from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.registry import ENGINE_MODELS, UnknownEngineModelError, build_engine
from simulator.engine_models.simulated_engine import TransferringEngine
from tests.simulator.engine_models.random_work import Driver


@pytest.mark.parametrize("name", sorted(ENGINE_MODELS))
def test_every_model_runs_and_can_transfer(name: str) -> None:
    engine = build_engine(name, EngineProfile(block_tokens=16, num_blocks=64))
    driver = Driver(engine)
    driver.play([("submit", [1, 2], 3, 1, 0), ("wait", 5.0), ("submit", [1, 2], 9, 1, 0)])
    assert isinstance(engine, TransferringEngine)
    assert engine.held_blocks((77,)) == 0


def test_an_unknown_model_lists_the_known_ones() -> None:
    with pytest.raises(UnknownEngineModelError, match=r"abacus.*reference"):
        build_engine("abacus", EngineProfile())
