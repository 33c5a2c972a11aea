"""Bytes and rates of the KV store page: stored bytes in binary units, rates in decimal ones, as links are rated."""

from __future__ import annotations

from controlplane.platform.format import NARROW_SPACE

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL = ("B/s", "kB/s", "MB/s", "GB/s", "TB/s")


def stored(size: float) -> str:
    """Return bytes with three significant digits: 0 B, 512 KiB, 1.25 GiB."""
    return _written(size, 1024.0, _BINARY)


def rate(bytes_per_s: float) -> str:
    """Return a rate with three significant digits: 12.5 GB/s; nothing where none was learned (0)."""
    return _written(bytes_per_s, 1000.0, _DECIMAL) if bytes_per_s > 0 else ""


def _written(value: float, base: float, units: tuple[str, ...]) -> str:
    place = 0
    while value >= 999.5 and place < len(units) - 1:
        value, place = value / base, place + 1
    digits = 0 if place == 0 or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f}{NARROW_SPACE}{units[place]}"
