from random import Random

import pytest

from gateway.kv.nodes.node_contents import ContentsChange, NodeContents
from kvstore.events.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch, KvEvent
from kvstore.events.node_blocks import extra_key
from kvstore.tiers.block_facts import BlockFacts, Medium
from tests.kvstore.kv_blocks import key


def facts(routing_key: int, payload: object = "") -> BlockFacts:
    return BlockFacts(key(payload or routing_key), 1000, key(routing_key), routing_key=routing_key)


def stored(*keys: int, medium: str | None = "CPU", payload: object = "") -> BlockStored:
    extra = [extra_key(item, key(payload or item)) for item in keys]
    return BlockStored(list(keys), None, [], 16, medium=medium, extra_keys=extra)


def removed(*keys: int, medium: str | None = "CPU", payload: object = "") -> BlockRemoved:
    return BlockRemoved(list(keys), medium, extra_keys=[extra_key(item, key(payload or item)) for item in keys])


def applied(contents: NodeContents, *events: KvEvent) -> list[ContentsChange]:
    changes = contents.apply(EventBatch(0.0, list(events), 0))
    contents.check()
    return changes


def test_a_page_reports_blocks_with_known_keys() -> None:
    contents = NodeContents(100)
    blocks = [(facts(1), ["CPU"]), (facts(0), ["CPU"]), (facts(2), ["CPU", "STORAGE"]), (facts(3), [])]
    assert contents.page(blocks) == [ContentsChange(True, [1, 2])]  # type: ignore[arg-type]
    assert len(contents) == 2


def test_a_block_is_held_while_any_of_its_copies_exists() -> None:
    contents = NodeContents(100)
    assert applied(contents, stored(1, 2)) == [ContentsChange(True, [1, 2])]
    assert applied(contents, stored(1, medium="STORAGE")) == []
    assert applied(contents, removed(1, 2)) == [ContentsChange(False, [2]), ContentsChange(True, [1], dram=False)]
    assert applied(contents, removed(1, medium="STORAGE")) == [ContentsChange(False, [1])]
    assert len(contents) == 0


def test_payloads_of_two_ranks_are_two_copies() -> None:
    contents = NodeContents(100)
    applied(contents, stored(1, payload="rank 0"), stored(1, payload="rank 1"))
    assert applied(contents, removed(1, payload="rank 0")) == []
    assert applied(contents, removed(1, payload="rank 1")) == [ContentsChange(False, [1])]


def test_events_already_covered_by_a_page_change_nothing() -> None:
    contents = NodeContents(100)
    contents.page([(facts(1), ["CPU", "STORAGE"])])
    assert applied(contents, stored(1), stored(1, medium="STORAGE")) == []
    assert applied(contents, removed(1)) == [ContentsChange(True, [1], dram=False)]
    assert applied(contents, stored(1)) == [ContentsChange(True, [1])]
    assert applied(contents, removed(1), removed(1, medium="STORAGE")) == [
        ContentsChange(True, [1], dram=False),
        ContentsChange(False, [1]),
    ]


def test_a_page_reports_blocks_that_are_only_on_ssd() -> None:
    contents = NodeContents(100)
    assert contents.page([(facts(1), ["STORAGE"]), (facts(2), ["CPU"])]) == [
        ContentsChange(True, [2]),
        ContentsChange(True, [1], dram=False),
    ]


def test_clearing_drops_everything_and_later_events_count() -> None:
    contents = NodeContents(100)
    applied(contents, stored(1, 2))
    assert applied(contents, AllBlocksCleared(), stored(2)) == [ContentsChange(False, None), ContentsChange(True, [2])]
    assert len(contents) == 1


@pytest.mark.parametrize("medium", ["GPU", None, "TAPE"])
def test_events_of_other_media_are_ignored(medium: str | None) -> None:
    contents = NodeContents(100)
    assert applied(contents, stored(1, medium=medium)) == []
    assert applied(contents, stored(1), removed(1, medium=medium)) == [ContentsChange(True, [1])]


def test_blocks_over_the_limit_are_counted_but_not_tracked() -> None:
    contents = NodeContents(2)
    assert applied(contents, stored(1, 2, 3)) == [ContentsChange(True, [1, 2])]
    assert contents.dropped == 1
    assert applied(contents, removed(3)) == []
    assert applied(contents, removed(1), stored(4)) == [ContentsChange(False, [1]), ContentsChange(True, [4])]


def test_deltas_produce_the_same_contents_as_full_copies() -> None:
    random, contents, held = Random(5), NodeContents(1000), dict[int, bool]()
    copies: set[tuple[int, str, Medium]] = set()
    media: tuple[Medium, ...] = ("CPU", "STORAGE")
    for _ in range(2000):
        block, payload, medium = random.randrange(1, 12), random.choice("xy"), random.choice(media)
        stores = random.random() < 0.5
        event = (stored if stores else removed)(block, medium=medium, payload=payload)
        for change in applied(contents, event):
            assert change.keys is not None
            for item in change.keys:
                if change.stored:
                    held[item] = change.dram
                else:
                    del held[item]
        (copies.add if stores else copies.discard)((block, payload, medium))
        in_dram = {name for name, _, medium in copies if medium == "CPU"}
        assert held == {name: name in in_dram for name, _, _ in copies}
        assert len(contents) == len(held)
