"""Repeats measured in several sittings: each is stored once it is complete, and the report covers all."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from bench.engines.real_engines_run.answers import RunFigures

Figures = Mapping[str, Mapping[float, RunFigures]]
"""The figures of one repeat, by router and rate."""
_SAMPLE_S = 3.0


class Repeats:
    """The stored repeats of one commit and one set of settings. Others are left unchanged."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._folder = folder
        self._settings = json.loads(json.dumps(settings))

    def missing(self, wanted: int) -> list[int]:
        """Return the numbers of the repeats that are not yet measured."""
        return [number for number in range(wanted) if self._read(number) is None]

    def keep(self, number: int, figures: Figures, conditions: Mapping[str, float]) -> None:
        """Store one complete repeat and its measurement conditions."""
        self._folder.mkdir(parents=True, exist_ok=True)
        # Rates are keys here; a share without any answer in time is Infinity, which Python's JSON can hold.
        runs = {
            name: {f"{rate:g}": msgspec.to_builtins(run) for rate, run in rates.items()}
            for name, rates in figures.items()
        }
        text = json.dumps({"settings": self._settings, "conditions": dict(conditions), "runs": runs}, indent=2)
        path = self._path(number)
        path.with_suffix(".part").write_text(text)
        path.with_suffix(".part").rename(path)

    def together(self, wanted: int) -> dict[str, dict[float, list[RunFigures]]]:
        """Return the figures of all repeats in order. Raises LookupError if one is missing."""
        results: dict[str, dict[float, list[RunFigures]]] = {}
        for number in range(wanted):
            kept = self._read(number)
            if kept is None:
                raise LookupError(f"repeat {number} is missing")
            for name, rates in kept["runs"].items():
                for rate, run in rates.items():
                    results.setdefault(name, {}).setdefault(float(rate), []).append(msgspec.convert(run, RunFigures))
        return results

    def conditions(self, wanted: int) -> list[dict[str, float]]:
        """Return the conditions of each repeat."""
        kept = [self._read(number) for number in range(wanted)]
        return [item["conditions"] for item in kept if item is not None]

    def _read(self, number: int) -> dict[str, Any] | None:
        try:
            kept: dict[str, Any] = json.loads(self._path(number).read_text())
        except (OSError, ValueError):
            return None
        return kept if kept["settings"] == self._settings else None

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._settings['commit']}-repeat-{number}.json"


def busy_share() -> float:
    """Return the used share of this machine's CPU time, measured over a few seconds."""
    before = _cpu_times()
    time.sleep(_SAMPLE_S)
    busy, whole = (now - then for now, then in zip(_cpu_times(), before, strict=True))
    return busy / max(whole, 1)


def _cpu_times() -> tuple[int, int]:
    times = [int(part) for part in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(times) - times[3] - times[4], sum(times)
