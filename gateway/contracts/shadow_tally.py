"""Results of a shadow policy's choices, in counts that can be summed over gateways, and a gateway's report of them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from random import Random

import msgspec

from gateway.contracts.wire import MIB, WireForm
from routing.trials.shadow import ShadowComparison
from routing.values.decision import Candidate

_STEPS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
GAIN_EDGES_S = (*(-item for item in reversed(_STEPS_S)), *_STEPS_S)
"""Edges of the ranges in which gains are counted, in seconds. Between the middle two edges, nothing changes."""
GAIN_RANGES = len(GAIN_EDGES_S) + 1
KEPT_SAMPLES = 24
"""Disagreements that one gateway keeps, sampled uniformly."""
MAX_ENGINES = 4096


class ShadowEngineShare(msgspec.Struct, gc=False):
    """Work that one engine received, and would have received. Tokens are uncached prompt tokens."""

    live_requests: int = 0
    live_tokens: int = 0
    shadow_requests: int = 0
    shadow_tokens: int = 0


class Disagreement(msgspec.Struct, frozen=True, gc=False):
    """One request that the two policies would have sent to different engines."""

    decision_id: str
    at: float
    """Unix seconds."""
    prompt_tokens: int
    live: Candidate
    live_reason: str
    shadow: Candidate
    shadow_reason: str


class ShadowTally(msgspec.Struct):
    """Counts since the shadow began at one gateway."""

    compared: int = 0
    agreed: int = 0
    unbound: int = 0
    """Requests that one of the policies did not bind to an engine immediately, so that they cannot be compared."""
    left_out: int = 0
    """Requests skipped because they exceeded the shadow's rate limit."""
    gain_s: float = 0.0
    """Sum of the expected TTFT gains in seconds; negative: a loss."""
    gain_hit_tokens: int = 0
    gains: list[int] = msgspec.field(default_factory=lambda: [0] * GAIN_RANGES)
    """Disagreements by gain, in the ranges between GAIN_EDGES_S, worst first."""
    answered: int = 0
    """Compared requests with a first token. `expected_s` and `measured_s` are sums over these."""
    expected_s: float = 0.0
    """Predicted TTFT for the engine that served the request."""
    measured_s: float = 0.0
    """Measured TTFT."""
    cpu_s: float = 0.0
    """CPU seconds of the shadow's choices."""
    cpu_max_s: float = 0.0
    """CPU seconds of the longest choice."""
    learning_cpu_s: float = 0.0
    """CPU seconds of the shadow's learning from feedback."""
    engines: dict[str, ShadowEngineShare] = {}
    sample: list[Disagreement] = []

    def note(self, compared: ShadowComparison, unix: float, rng: Random) -> None:
        """Count one comparison."""
        self.compared += 1
        live, shadow = compared.live, compared.shadow
        self._note_shares(compared, live, shadow)
        if compared.agreed:
            self.agreed += 1
            return
        gain_s = compared.gain_s
        self.gain_s += gain_s
        self.gain_hit_tokens += compared.gain_hit_tokens
        self.gains[bisect_right(GAIN_EDGES_S, gain_s)] += 1
        self._keep(compared, unix, rng)

    def note_answer(self, expected_s: float, measured_s: float) -> None:
        """Count the first token of a compared request."""
        self.answered += 1
        self.expected_s += expected_s
        self.measured_s += measured_s

    def note_cpu(self, seconds: float) -> None:
        """Add the CPU time of one choice."""
        self.cpu_s += seconds
        self.cpu_max_s = max(self.cpu_max_s, seconds)

    def _note_shares(self, compared: ShadowComparison, live: Candidate, shadow: Candidate) -> None:
        engines = self.engines
        if len(engines) + 2 > MAX_ENGINES and not {live.engine_id, shadow.engine_id} <= engines.keys():
            return
        given = engines.setdefault(live.engine_id, ShadowEngineShare())
        given.live_requests += 1
        given.live_tokens += compared.prompt_tokens - live.hit_tokens
        given = engines.setdefault(shadow.engine_id, ShadowEngineShare())
        given.shadow_requests += 1
        given.shadow_tokens += compared.prompt_tokens - shadow.hit_tokens

    def _keep(self, compared: ShadowComparison, unix: float, rng: Random) -> None:
        """Keep the disagreement with the same probability as all earlier ones (Vitter 1985, algorithm R)."""
        seen = self.compared - self.agreed
        index = len(self.sample) if len(self.sample) < KEPT_SAMPLES else rng.randrange(seen)
        if index >= KEPT_SAMPLES:
            return
        kept = Disagreement(
            compared.request_id,
            unix,
            compared.prompt_tokens,
            compared.live,
            compared.live_reason,
            compared.shadow,
            compared.shadow_reason,
        )
        if index == len(self.sample):
            self.sample.append(kept)
        else:
            self.sample[index] = kept


def added_up(tallies: Iterable[ShadowTally]) -> ShadowTally:
    """Return the sum of several gateways' tallies, including all their samples."""
    total = ShadowTally()
    for one in tallies:
        total.compared += one.compared
        total.agreed += one.agreed
        total.unbound += one.unbound
        total.left_out += one.left_out
        total.gain_s += one.gain_s
        total.gain_hit_tokens += one.gain_hit_tokens
        total.gains = [mine + its for mine, its in zip(total.gains, one.gains, strict=True)]
        total.answered += one.answered
        total.expected_s += one.expected_s
        total.measured_s += one.measured_s
        total.cpu_s += one.cpu_s
        total.cpu_max_s = max(total.cpu_max_s, one.cpu_max_s)
        total.learning_cpu_s += one.learning_cpu_s
        for engine_id, share in one.engines.items():
            mine = total.engines.setdefault(engine_id, ShadowEngineShare())
            for name in share.__struct_fields__:
                setattr(mine, name, getattr(mine, name) + getattr(share, name))
        total.sample += one.sample
    return total


TOPIC = "shadow_reports"
"""Stream topic; values are encoded ShadowReports."""
_MAX_NAME = 128


class ShadowReport(msgspec.Struct, frozen=True, kw_only=True):
    """All counts of one part of a run. A later report on the same part replaces it."""

    pool_id: str
    run_id: str
    part: str
    """One run at one gateway. A restarted gateway begins another part."""
    at: float
    """Unix seconds."""
    tally: ShadowTally
    failed: str = ""
    """Why the shadow ended early, as a sentence; empty if it did not."""


def report_problem(report: ShadowReport) -> str:
    """Return the problem of a report with its path, empty for a valid report."""
    tally = report.tally
    names = (report.pool_id, report.run_id, report.part)
    if any(not 0 < len(name) <= _MAX_NAME for name in names):
        return "pool_id, run_id or part is empty or too long"
    if len(tally.gains) != GAIN_RANGES or len(tally.engines) > MAX_ENGINES or len(tally.sample) > KEPT_SAMPLES:
        return "tally has too many ranges, engines or samples"
    cpu_times = (tally.cpu_s, tally.cpu_max_s, tally.learning_cpu_s)
    figures = [report.at, tally.gain_s, tally.expected_s, tally.measured_s, *cpu_times]
    for item in tally.sample:
        for scored in (item.live, item.shadow):
            figures += (scored.wait_s, scored.compute_s, scored.cost)
    if not all(map(math.isfinite, figures)):
        return "a figure is not finite"
    counts = [tally.compared, tally.agreed, tally.unbound, tally.left_out, tally.answered, *tally.gains]
    if min(counts) < 0 or tally.agreed + sum(tally.gains) != tally.compared:
        return "counts are negative or do not add up"
    return ""


_report = WireForm(ShadowReport, "a shadow report", limit=16 * MIB, problem=report_problem)
encode_shadow_report, decode_shadow_report = _report.encode, _report.decode
