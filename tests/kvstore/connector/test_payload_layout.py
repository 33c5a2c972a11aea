"""Layers follow one another in a payload; the layout's name covers everything that determines their bytes."""

from __future__ import annotations

import pytest

from kvstore.connector.payload_layout import LayerLayout, payload_layout


def layer(name: str = "0", dtype: str = "bfloat16", order: tuple[int, ...] = (0, 1, 2)) -> LayerLayout:
    return LayerLayout(name, dtype, (2, 16, 4), order, 256)


def test_each_layer_has_an_offset() -> None:
    layout = payload_layout([layer("0"), layer("1")], "kernel")
    assert (layout.offsets, layout.payload_bytes) == ((0, 256), 512)
    assert layout.name == payload_layout([layer("0"), layer("1")], "kernel").name


@pytest.mark.parametrize(
    ("layers", "kernel"),
    [
        ([layer("0")], "kernel"),
        ([layer("0"), layer("2")], "kernel"),
        ([layer("0", dtype="float16"), layer("1")], "kernel"),
        ([layer("0", order=(1, 0, 2)), layer("1")], "kernel"),
        ([layer("0"), layer("1")], "another"),
    ],
    ids=["layers", "names", "dtype", "order of dimensions", "kernel"],
)
def test_different_bytes_have_a_different_name(layers: list[LayerLayout], kernel: str) -> None:
    assert payload_layout(layers, kernel).name != payload_layout([layer("0"), layer("1")], "kernel").name


def test_an_engine_without_blocks_has_no_layout() -> None:
    with pytest.raises(ValueError, match="no KV caches"):
        payload_layout([], "kernel")
