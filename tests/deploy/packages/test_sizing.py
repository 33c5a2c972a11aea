"""The table of docs/sizing.md equals the measurements of the committed run."""

from __future__ import annotations

import json
import re
from pathlib import Path

from bench.gateway.sizing import SIZES

ROOT = Path(__file__).resolve().parents[3]


def test_the_table_equals_the_report() -> None:
    figures = json.loads((ROOT / "bench/results/reports/sizing.json").read_text())["figures"]
    text = (ROOT / "docs/sizing.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ([\d.]+) \| (\d+) \| ([\d.]+) \|$", text, re.MULTILINE)
    names = ("cpu_us", "decisions_per_s_and_core", "mb")
    assert [(int(size), *map(float, rest)) for size, *rest in rows] == [
        (size, *(figures[f"{name}_{size}_engines"] for name in names)) for size in SIZES
    ]
    assert f"load average {figures['load_average']}" in text.replace("\n", " ")
