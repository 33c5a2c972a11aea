"""Where each engine's time to first token goes, as stacked bars: queue, transfer, prefill; mean and 90th percentile."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from controlplane.platform.format import duration
from gateway.contracts.affinity_sample import EngineAffinity, PoolAffinity, SplitMean, SplitSpan
from web.history.affinity_links import Links
from web.shell.chart import Bar, bars, place, ticks

WINDOWS = {"1": 60.0, "5": 300.0, "15": 900.0}
MAX_ROWS = 40


@dataclass(frozen=True, slots=True)
class SplitRow:
    """One engine's bars, in percent of the common scale, and its figures."""

    name: str
    slow: str
    """Address of its late decisions."""
    requests: str
    mean: tuple[Bar, ...]
    p90: tuple[Bar, ...]
    mean_words: str
    p90_words: str
    cells: tuple[str, ...]
    """Mean queue, transfer, prefill, all; then the same at the 90th percentile."""


@dataclass(frozen=True, slots=True)
class TtftPicture:
    """What the panel shows."""

    windows: tuple[tuple[str, str, bool], ...]
    """Words, address, and whether it is shown."""
    rows: tuple[SplitRow, ...]
    left_out: int
    ticks: tuple[tuple[str, str], ...]
    summary: str


def ttft_picture(told: PoolAffinity, window: str, links: Links) -> TtftPicture:
    """Return the picture of a span of WINDOWS; engines without a request in it are left out."""
    spans = [
        (engine, span) for engine in told.engines for span in engine.split if abs(span.span_s - WINDOWS[window]) < 1
    ]
    spans.sort(key=lambda each: (-_total(each[1].p90), each[0].name))
    end_s = 1.04 * max([0.001, *(max(_total(span.mean), _total(span.p90)) for _, span in spans)])
    shown = spans[:MAX_ROWS]
    return TtftPicture(
        windows=tuple((f"{each} min", links.to(window=each), each == window) for each in WINDOWS),
        rows=tuple(_row(told, engine, span, end_s) for engine, span in shown),
        left_out=len(spans) - len(shown),
        ticks=tuple((place(100 * each / end_s), duration(each) if each else "0") for each in ticks(end_s)),
        summary="; ".join(
            f"{engine.name} mean {duration(_total(span.mean))}, p90 {duration(_total(span.p90))}"
            for engine, span in shown[:8]
        ),
    )


def _row(told: PoolAffinity, engine: EngineAffinity, span: SplitSpan, end_s: float) -> SplitRow:
    query = urlencode({"pool": told.pool_id, "engine": engine.name, "late": "1"})
    return SplitRow(
        name=engine.name,
        slow=f"/decisions?{query}",
        requests=f"{span.requests:,}",
        mean=_bars(span.mean, end_s),
        p90=_bars(span.p90, end_s),
        mean_words=duration(_total(span.mean)),
        p90_words=duration(_total(span.p90)),
        cells=(*_cells(span.mean), *_cells(span.p90)),
    )


def _bars(parts: SplitMean, end_s: float) -> tuple[Bar, ...]:
    return bars((("queue", parts.queue_s), ("transfer", parts.transfer_s), ("prefill", parts.prefill_s)), end_s)


def _cells(parts: SplitMean) -> tuple[str, ...]:
    return tuple(duration(each) for each in (parts.queue_s, parts.transfer_s, parts.prefill_s, _total(parts)))


def _total(parts: SplitMean) -> float:
    return parts.queue_s + parts.transfer_s + parts.prefill_s
