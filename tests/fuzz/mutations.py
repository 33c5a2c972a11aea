"""Inputs close to valid ones: a seed with a few bytes changed, cut, doubled or removed."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

ODD = [b"", b"\x00", b"\xff", b'"', b"\\", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\xcf" + b"\xff" * 8, b"NaN", b"\r\n"]


@st.composite
def near(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """Draw one of the seeds with up to four changes."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 4))):
        begin = draw(st.integers(0, len(data)))
        end = min(len(data), begin + draw(st.integers(0, 8)))
        data = (
            data[:begin]
            + draw(st.sampled_from(ODD) | st.binary(max_size=6) | st.just(data[begin:end] * 2))
            + data[end:]
        )
    return data
