from kvstore.tiers.arena import Arena


def test_slots_do_not_overlap_and_a_shorter_block_leaves_no_bytes_of_a_longer_one() -> None:
    arena = Arena(3, 4096)
    for slot in range(3):
        arena.claim(slot, 4096)[:] = bytes([slot + 1]) * 4096
    arena.claim(1, 10)[:] = b"x" * 10
    assert bytes(arena.view(0, 4096)) == b"\x01" * 4096
    assert bytes(arena.view(1, 4096)) == b"x" * 10 + bytes(4086)
    assert bytes(arena.view(2, 4096)) == b"\x03" * 4096
    arena.scrub(2)
    assert not any(arena.view(2, 4096))
    arena.close()
