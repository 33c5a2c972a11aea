"""Work sent to an engine is counted in blocks, however long the prompts are."""

from __future__ import annotations

import pytest

from kvstore.index.prefix_match import LONG
from tests.routing.pools import BLOCK, pool, request


@pytest.mark.parametrize("blocks", [5, LONG - 1, LONG, 3 * LONG + 7])
@pytest.mark.parametrize("held", [0, 3])
def test_each_received_block_is_counted_once(blocks: int, held: int) -> None:
    router, asked = pool(size=1), request(1, range(blocks))
    router.blocks_stored("e-01", asked.keys[:held])
    router.place(asked, 0.0, hold=False)
    assert router.view.load.sent_blocks[0] == blocks - held


def test_a_partial_last_block_is_not_counted() -> None:
    router = pool(size=1)
    router.place(request(1, range(LONG), tokens=LONG * BLOCK + 100), 0.0, hold=False)
    assert router.view.load.sent_blocks[0] == LONG
