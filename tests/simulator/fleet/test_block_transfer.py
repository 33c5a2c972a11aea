"""A simulated fleet whose engines keep copies in CPU memory: indexed, used, and learned at their real cost."""

import msgspec
import pytest

from kvstore.index.lower_tiers import CPU
from routing.policy.policy_document import Stage
from routing.values.load_options import Fetch
from simulator.engine_models.engine_events import EngineEvent
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.reference import ReferenceEngine
from simulator.engine_models.simulated_engine import PromptSequence
from simulator.fleet.block_transfer import BlockTransfers, land
from simulator.fleet.engine_slots import Station
from simulator.fleet.fleet_simulation import FleetSimulation
from simulator.runs.simulation_run import RunSpec, evaluation_policy, run
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.registry import generate_workload
from tests.routing.pools import request
from tests.simulator.fleets import row, simulated

SECONDS_PER_BLOCK = 512 * 57_344 / 12.5e9
ASKED = request(1, range(4), tokens=4 * 512 - 100)


def station(name: str, *held: int) -> Station:
    engine = ReferenceEngine(EngineProfile())
    if held:
        engine.receive_blocks(held, 0.0)
    return Station(name, 1, engine, 1.0)


def fetch(blocks: int = 4) -> Fetch:
    return Fetch("sender", blocks, 0.1)


def test_only_blocks_that_the_sender_holds_and_the_receiver_lacks_are_sent() -> None:
    sender, receiver = station("sender", *ASKED.keys[:3]), station("receiver", *ASKED.keys[:1])
    transfer = BlockTransfers().start(fetch(), ASKED, sender, receiver, 7.0)
    assert transfer is not None
    assert transfer.blocks == 3
    assert transfer.lands_s == pytest.approx(7.0 + 2 * SECONDS_PER_BLOCK)


def test_a_partial_last_block_sends_only_its_tokens() -> None:
    transfer = BlockTransfers().start(fetch(), ASKED, station("sender", *ASKED.keys), station("receiver"), 0.0)
    assert transfer is not None
    assert transfer.lands_s == pytest.approx((4 * 512 - 100) * 57_344 / 12.5e9)


@pytest.mark.parametrize("held", [0, 2])
def test_nothing_is_sent_if_the_sender_has_no_more_blocks(held: int) -> None:
    sender, receiver = station("sender", *ASKED.keys[:held]), station("receiver", *ASKED.keys[:2])
    assert BlockTransfers().start(fetch(), ASKED, sender, receiver, 0.0) is None
    assert BlockTransfers().start(fetch(), ASKED, None, receiver, 0.0) is None


def test_a_prefill_still_running_at_the_sender_provides_nothing() -> None:
    sender = station("sender")
    sender.engine.submit(PromptSequence("other", ASKED.keys, ASKED.prompt_tokens), 0.0)
    sender.engine.advance(0.05)
    assert BlockTransfers().start(fetch(), ASKED, sender, station("receiver"), 0.05) is None


def test_transfers_of_one_sender_run_one_after_another() -> None:
    transfers, sender, other = BlockTransfers(), station("sender", *ASKED.keys), station("other", *ASKED.keys)
    lands = []
    for source in (sender, sender, other):
        transfer = transfers.start(fetch(2), ASKED, source, station("receiver"), 1.0)
        assert transfer is not None
        lands.append((transfer.lands_s - 1.0) / SECONDS_PER_BLOCK)
    assert lands == pytest.approx([2, 4, 2])


def test_a_transfer_keeps_its_senders_link_busy() -> None:
    transfers, sender = BlockTransfers(), station("sender", *ASKED.keys)
    transfers.start(fetch(2), ASKED, None, station("receiver"), 5.0)
    assert transfers.sending_until == {}
    transfers.start(fetch(2), ASKED, sender, station("receiver"), 5.0)
    assert transfers.sending_until == {"sender": pytest.approx(5.0 + 2 * SECONDS_PER_BLOCK)}


def test_received_blocks_are_in_the_receivers_cache_and_announced() -> None:
    published: list[EngineEvent] = []
    receiver = station("receiver", *ASKED.keys[:1])
    moved = land(receiver, ASKED, 3, 2.0, lambda _, events: published.extend(events))
    assert moved == 2 * 512
    assert receiver.engine.cached_blocks == 3
    assert len(published) == 1


WORKLOAD = Workload(generate_workload("toolagent_like", seed=7, rows=1200), max_input=20_480)
POLICY = msgspec.structs.replace(evaluation_policy(Stage(name="least_cost"), Stage(name="fifo")), cost="fitted")


def fleet(cpu_blocks: int, load_s: float = 0.0) -> FleetSimulation:
    profile = EngineProfile(num_blocks=300, cpu_blocks=cpu_blocks, cpu_load_per_token_s=load_s)
    spec = RunSpec(policy=POLICY, engine_model="colocated", engines=4, qps=9, warmup=300, profile=profile)
    simulation = run(spec, WORKLOAD)
    simulation.check()
    return simulation


def mean_ttft_s(simulation: FleetSimulation) -> float:
    waits = [item.first_token_s - item.request.arrived_s for item in simulation.history if item.first_token_s]
    return sum(waits) / len(waits)


@pytest.mark.parametrize(("load_s", "most"), [(6e-6, 0.9), (30e-6, 1.15)])
def test_the_learned_cost_of_a_tier_is_the_real_one_and_a_fast_tier_helps(load_s: float, most: float) -> None:
    """A slow tier can cost time, because the engine loads whether or not that is faster, as vLLM does."""
    simulation = fleet(4000, load_s)
    router = simulation.router
    learned = router.fleet.loading_costs.token_s(router.fleet.facts()[0].engine_id, CPU)
    assert learned == pytest.approx(load_s, rel=0.25)
    assert mean_ttft_s(simulation) < most * mean_ttft_s(fleet(0))


def test_the_index_knows_the_copies_of_each_engine() -> None:
    profile = EngineProfile(num_blocks=8, cpu_blocks=14)
    rows = [row(number, range(10 * (number % 8), 10 * (number % 8) + 6)) for number in range(80)]
    policy = evaluation_policy(Stage(name="least_cost"), Stage(name="fifo"), profile=profile)
    spec = RunSpec(policy=policy, engine_model="colocated", engines=2, profile=profile)
    simulation, _ = simulated(rows, spec)
    tiers, router = simulation.router.index.tiers, simulation.router
    for station in simulation.stations:
        target = router.fleet.known_target(station.engine_id)
        held = {key for key, targets in tiers._tables[CPU].items() if targets >> target & 1}
        assert held == set(station.engine._copies._order)
        assert len(held) == 14
