import pytest

from routing.values.load_options import Fetch
from simulator.engine_models.engine_events import EngineEvent
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.reference import ReferenceEngine
from simulator.engine_models.simulated_engine import PromptSequence
from simulator.fleet.block_transfer import BlockTransfers, land
from simulator.fleet.engine_slots import Station
from tests.routing.pools import request

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
