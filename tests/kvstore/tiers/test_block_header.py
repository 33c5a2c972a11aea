from hypothesis import given
from hypothesis import strategies as st

from kvstore.tiers.block_facts import BlockFacts
from kvstore.tiers.block_header import HEADER_BYTES, BlockHeader, decode_header
from tests.kvstore.kv_blocks import SLOT, facts

FACTS = st.builds(
    BlockFacts,
    key=st.binary(min_size=32, max_size=32),
    length=st.integers(1, SLOT),
    chain_hash=st.binary(max_size=32),
    parent=st.just(b"") | st.binary(min_size=32, max_size=32).filter(any),
    tokens=st.integers(0, (1 << 32) - 1),
    tenant=st.text(max_size=16),
    checksum=st.binary(min_size=16, max_size=16),
).filter(lambda item: not item.fault(SLOT))
HEADERS = st.builds(
    BlockHeader,
    FACTS,
    st.booleans(),
    st.integers(0, (1 << 64) - 1),
    st.integers(0, (1 << 64) - 1),
    st.floats(0, 1e12),
    st.floats(0, 1e12),
)


@given(HEADERS)
def test_a_header_round_trips_through_the_disk(header: BlockHeader) -> None:
    data = header.encode()
    assert len(data) == HEADER_BYTES
    assert decode_header(data, SLOT) == header


@given(HEADERS, st.integers(0, 240), st.integers(1, 255))
def test_a_changed_byte_invalidates_a_header(header: BlockHeader, offset: int, change: int) -> None:
    data = bytearray(header.encode())
    data[offset] ^= change
    assert decode_header(bytes(data), SLOT) is None


@given(st.binary(max_size=2 * HEADER_BYTES))
def test_garbage_is_not_a_header(data: bytes) -> None:
    assert decode_header(data, SLOT) is None


def test_a_header_with_a_block_longer_than_its_slot_is_rejected() -> None:
    assert decode_header(BlockHeader(facts("a", length=SLOT)).encode(), SLOT - 1) is None
