"""Copy blocks of KV caches in the forms that engines provide; run by the Python that has torch."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from kvstore.connector.paged_memory import PagedMemory

BLOCKS, IDS, TO = 10, [7, 2, 5], [1, 8, 3]
LAYERS = ("layer.10", "layer.9")
"""The engine computes the second one first."""


def caches(form: str) -> dict[str, torch.Tensor]:
    """Return two layers of random numbers in one of the forms; the first dimension of `by_block` counts blocks."""
    torch.manual_seed(3)
    shape = {
        "keys and values within a block": (BLOCKS, 2, 16, 4, 8),
        "keys and values apart": (2, BLOCKS, 16, 4, 8),
        "heads before tokens": (BLOCKS, 2, 16, 4, 8),
        "two blocks of the kernel in one": (2 * BLOCKS, 2, 8, 4, 8),
        "one latent": (BLOCKS, 16, 8),
        "bytes": (BLOCKS, 2, 16, 4, 8),
    }[form]
    made = {}
    for layer in LAYERS:
        cache = torch.randn(shape).to(torch.bfloat16)
        if form == "bytes":
            cache = torch.randint(0, 255, shape, dtype=torch.uint8)
        if form == "heads before tokens":
            cache = cache.transpose(2, 3).contiguous().transpose(2, 3)
        made[layer] = cache
    return made


def by_block(form: str, cache: torch.Tensor) -> torch.Tensor:
    """Return a view whose first dimension counts the scheduler's blocks."""
    if form == "keys and values apart":
        return cache.transpose(0, 1)
    return cache.view(BLOCKS, 2, *cache.shape[1:]) if form == "two blocks of the kernel in one" else cache


def check(form: str) -> str:
    """Copy blocks of one engine into other blocks of another; return the layout's name."""
    with torch.inference_mode():
        source: Mapping[str, torch.Tensor] = caches(form)
        target = {name: torch.zeros_like(cache) for name, cache in source.items()}
    one, other = PagedMemory(source, BLOCKS, "kernel"), PagedMemory(target, BLOCKS, "kernel")
    assert one.layout == other.layout
    assert [layer.name for layer in one.layout.layers] == ["layer.9", "layer.10"]
    assert [one.layers_of(name) for name in ("layer.9", "layer.10", "x")] == [range(1), range(1, 2), range(2, 2)]
    payloads = one.buffer(len(IDS))
    assert len(payloads) == len(IDS) * one.payload_bytes
    one.gather(IDS, payloads, range(1), one.mark())
    assert one.payload_bytes * BLOCKS == sum(cache.nbytes for cache in source.values())
    other.scatter(TO, payloads, range(1), other.mark())
    assert not target["layer.10"].any(), "only the first layer has arrived"
    one.gather(IDS, payloads, range(1, 2), one.mark())
    other.scatter(TO, payloads, range(1, 2), other.mark())
    for name in source:
        came, sent = by_block(form, target[name]), by_block(form, source[name])
        assert torch.equal(came[TO], sent[IDS]), (form, name)
        untouched = [block for block in range(BLOCKS) if block not in TO]
        assert not came[untouched].any(), (form, name)
    return one.layout.name


def main() -> None:
    """Check each form, and that two layouts share a name only if their payloads are the same."""
    forms = (
        "keys and values within a block",
        "keys and values apart",
        "heads before tokens",
        "two blocks of the kernel in one",
        "one latent",
        "bytes",
    )
    names = [check(form) for form in forms]
    assert names[0] == names[1]
    assert len(set(names)) == len(forms) - 1, "layouts with other bytes share a name"
    try:
        PagedMemory({"layer.0": torch.zeros(7, 16, 8)}, BLOCKS, "kernel")
    except ValueError:
        return
    raise AssertionError("a cache without so many blocks was accepted")


if __name__ == "__main__":
    main()
