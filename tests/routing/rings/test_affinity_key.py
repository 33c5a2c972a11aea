import msgspec

from routing.rings.affinity_key import affinity_key
from tests.routing.pools import request


def test_the_affinity_key_is_the_key_of_the_last_counted_block() -> None:
    asked = request(1, [7, 8, 9])
    assert affinity_key(asked, 2) == asked.keys[1]
    assert affinity_key(asked, 5) == asked.keys[2]


def test_finer_first_blocks_precede_the_larger_ones() -> None:
    asked = msgspec.structs.replace(request(1, [7, 8, 9]), head=(21, 22, 23, 24))
    assert [affinity_key(asked, blocks) for blocks in (1, 3, 9)] == [21, 23, 24]


def test_a_prompt_without_blocks_uses_its_id() -> None:
    assert affinity_key(request(1, []), 2) != affinity_key(request(2, []), 2)
