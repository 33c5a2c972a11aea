"""Roles of a pool that are incomplete are reported."""

import pytest

from controlplane.fleet.pool_problems import role_problems


@pytest.mark.parametrize(
    ("roles", "word"),
    [
        ({}, ""),
        ({"mixed": 3}, ""),
        ({"prefill": 1, "decode": 2}, ""),
        ({"prefill": 2, "mixed": 1}, "2 prefill, but no decode engine"),
        ({"decode": 1}, "1 decode, but no prefill engine"),
    ],
)
def test_prefill_without_decode_and_decode_without_prefill_are_faults(roles: dict[str, int], word: str) -> None:
    problems = role_problems(roles)
    assert bool(problems) == bool(word)
    assert word in "".join(problems)
