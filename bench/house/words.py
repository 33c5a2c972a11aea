"""Words of our own that the field has other ones for, and the names in contracts that keep them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

WORDS = {
    r"[Tt]ickets?|TICKETS?": "queued request",
    r"[Hh]opeless": "SLO-infeasible",
    r"(?<![A-Za-z])[Pp]ark(?:s|ed|ing)?(?![a-z])|PARKED": "deferred",
    r"[Ll]ate[ _]?[Bb]inding": "pull scheduling",
    r"[Cc]ontrol[ _]?[Ss]lices?": "holdback",
    r"[Pp]ass(?:ed|ing)[ _]over": "starvation limit",
    r"[Pp]ush[ _]?[Gg]ate": "dispatch limit",
    r"[Ff]ading[ _]load": "EWMA load",
    r"[Ss]low[ _]return": "slow start",
    r"[Oo]utlier[ _]excuse": "max ejection, panic threshold",
    r"[Aa]rm[ _]?[Cc]omparison": "trial",
    r"[Jj]ourneys?": "release timeline",
    r"(?:[Bb]ase|[Tt]ried) arm": "baseline, candidate",
    r"AgentHints|hint that a request": "advisory",
    r"(?<![A-Za-z])[Tt]bt(?![a-z])|TBT": "TPOT, ITL",
    r"[Oo]utstanding|OUTSTANDING": "in-flight work",
    r"[Rr]efus(?:e[sd]?|als?|ing)": "reject, rejection",
}
"""A pattern and what to say instead."""

CONTRACTS = (
    # Settings of policy documents and their values, which are stored and sent.
    r"(?:\b|__)(?:max_tickets|refuse_hopeless|control_slice|max_passed_over_s|max_outstanding|tbt_slo_s)\b",
    r"OUTSTANDING|mode outstanding|outstanding: fewer",
    # Metrics, and names of log events.
    r"\bheadway_\w+|\b\w+_refused\b(?=\")",
    # Queue orders, policies of regions, and the reasons and outcomes that decisions and plans are stored with.
    r"\b(?:late_binding|LateBinding|no_tickets|hopeless_last|passed_over_bound)\b|sglang_outstanding_|\b_outstanding\b",
    r"[\"'`](?:hopeless|parked|refused|outstanding|tbt)[\"'`]|\bhopeless:",
    # Table, constraint and actor of the holdback.
    r"\bControlSlice\b|control_slice_state_known|\"control slice\"",
    # Fields of what gateways and node managers send, of the frames to browsers, of the API and of run reports.
    r"\b(?:outstanding_(?:tokens|s)|refusals_per_s|refused_(?:share|samples)|journey|get_journey|JourneyStepShape)\b",
    r"\b(?:tbt_(?:s|samples|p\d+_s|p)|slo_tbt\w*)\b",
    # Plain English, and the operating system's word for a port that nothing listens on.
    r"\b[Rr]efus\w+ to\b|Connect(?:ion)?RefusedError|ECONNREFUSED|connections_refused",
    r"[Cc]onnections? (?:is |was )?refused|refuses? connections?",
)
ENFORCED = [word for word in WORDS if "efus" not in word and "TBT" not in word]
"""Those that tests/house/test_words.py forbids; TBT is the papers' word, and refusals are of more than requests."""

SUFFIXES = {".py", ".html", ".js", ".css", ".md"}
SKIPPED = {"migrations", "node_modules", "static", "results", "dist", "__pycache__"}


def broken_words(tree: Path, parts: Sequence[str], words: Sequence[str] = ()) -> Iterator[tuple[str, list[str]]]:
    """Yield each line under `parts` that has such words, as "path:line", with the words; contracts' names are none."""
    pattern = re.compile("|".join(words or WORDS))
    contracts = re.compile("|".join(CONTRACTS))
    for part in parts:
        for path in sorted((tree / part).rglob("*")):
            if path.suffix in SUFFIXES and not SKIPPED & set(path.parts):
                for number, line in enumerate(path.read_text().splitlines(), 1):
                    if pattern.search(line) and (found := pattern.findall(contracts.sub("", line))):
                        yield f"{path.relative_to(tree)}:{number}", found
