"""Remove each part of each requirement's mechanism in turn, and run the tests that docs/reliability.md names for it.

`python -m bench.house.removals [R…]` prints a line per removal: noticed (a test fails) or survived. A survivor means
that the row claims more than its tests prove. Mutation testers do not fit: mutmut and Cosmic Ray change operators and
constants everywhere and judge a whole suite by its share of killed mutants. Here a person names the mechanism behind a
sentence of the table, and only the tests that the row names count.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bench.house.removals.removal import Removal, all_removals, chosen
from bench.house.removals.requirement_table import PATH, Requirement, requirements
from bench.house.removals.tree_copy import BROKEN, FAILED, HUNG, PASSED, Run, TreeCopy
from bench.report import Target, command_line, report

ROOT = Path(__file__).resolve().parents[3]
RESUMED = ROOT / "var" / "bench" / "removals.jsonl"
"""Finished runs, to resume from."""
NOTICED, SURVIVED = "noticed", "survived"
_VERDICTS = {FAILED: NOTICED, PASSED: SURVIVED, HUNG: HUNG, BROKEN: BROKEN}

Tests = tuple[tuple[str, str], ...]


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of one part."""

    row: str
    part: str
    verdict: str
    """noticed, survived, hung, or broken (its tests could not run, or fail without any removal)."""
    why: str
    unproved: bool = False

    @property
    def expected(self) -> bool:
        """Whether the outcome agrees with the table of removals."""
        return self.verdict == (SURVIVED if self.unproved else NOTICED)


class Done(msgspec.Struct, frozen=True):
    """One line of the resume file."""

    key: str
    run: Run


class Runs:
    """Runs tests with and without removals, and records each run in a file. Mutable: the runs so far."""

    def __init__(self, copy: TreeCopy, file: Path, limit_s: float, *, resume: bool) -> None:
        self._copy, self._file, self._limit_s = copy, file, limit_s
        self._done: dict[str, Run] = {}
        file.parent.mkdir(parents=True, exist_ok=True)
        if resume and file.exists():
            lines = (msgspec.json.decode(line, type=Done) for line in file.read_bytes().splitlines())
            self._done = {line.key: line.run for line in lines}
        else:
            file.unlink(missing_ok=True)

    def whole(self, tests: Tests) -> Run:
        """Run tests without any removal."""
        return self._once(None, tests)

    def without(self, removal: Removal, tests: Tests) -> Run:
        """Run tests with one part removed."""
        return self._once(removal, tests)

    def _once(self, removal: Removal | None, tests: Tests) -> Run:
        key = self._key(removal, tests)
        if key not in self._done:
            if removal is None:
                run = self._copy.run(tests, self._limit_s * len(tests), until_failure=False)
            else:
                with self._copy.without(removal):
                    run = self._copy.run(tests, self._limit_s)
            self._done[key] = run
            what = removal.part if removal is not None else " ".join(name for _, name in tests)
            print(f"  {run.how} in {run.seconds:.0f} s: {what}", flush=True)
            with self._file.open("ab") as file:
                file.write(msgspec.json.encode(Done(key, run)) + b"\n")
        return self._done[key]

    def _key(self, removal: Removal | None, tests: Tests) -> str:
        """Return the key of a run: the removal, and the texts of the edited files and of the tests."""
        files = {file for file, _ in tests} | (removal.files if removal is not None else set())
        parts = (removal, tests, [(self._copy.path / file).read_bytes() for file in sorted(files)])
        return hashlib.sha256(msgspec.msgpack.encode(parts)).hexdigest()[:16]


def named_tests(row: str, removal: Removal, requirement: Requirement) -> Tests:
    """Return file and name of the tests that must fail. Raises ValueError if the row does not name one."""
    for name in removal.tests:
        if name not in requirement.tests:
            raise ValueError(f"{row}: {removal.part}: docs/reliability.md does not name {name}")
    return tuple((requirement.tests[name], name) for name in removal.tests)


def run_all(removals: Sequence[tuple[str, Removal]], runs: Runs, known: Mapping[str, Requirement]) -> list[Outcome]:
    """Return the outcome of each part. Rows with slow tests run last."""
    tests = {id(removal): named_tests(row, removal, known[row]) for row, removal in removals}
    of_row: dict[str, dict[tuple[str, str], None]] = {}
    for row, removal in removals:
        of_row.setdefault(row, {}).update(dict.fromkeys(tests[id(removal)]))
    whole = {row: runs.whole(tuple(named)) for row, named in of_row.items()}
    outcomes = []
    for row, removal in sorted(removals, key=lambda item: whole[item[0]].seconds):
        before = whole[row]
        missing = [name for name in removal.tests if name not in before.passed]
        if missing:
            verdict, why = BROKEN, f"{' '.join(missing)}: did not pass with nothing removed ({before.how} {before.why})"
        else:
            run = runs.without(removal, tests[id(removal)])
            verdict, why = _VERDICTS[run.how], run.why
        outcomes.append(Outcome(row, removal.part, verdict, why, removal.unproved))
        print(f"{len(outcomes)}/{len(removals)} {row} {removal.part}: {verdict} {why}", flush=True)
    return outcomes


def main(argv: Sequence[str] | None = None) -> int:
    """Run the removals of some or all rows, and write the outcomes. Return 1 if one is unexpected."""
    parser = command_line("removals", __doc__)
    parser.add_argument("rows", nargs="*", metavar="R", help="rows, such as R29; none: all")
    parser.add_argument("--only", default="", metavar="WORD", help="only the parts with this word in their name")
    parser.add_argument("--limit", type=float, default=600.0, metavar="S", help="seconds for the tests of one removal")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run")
    arguments = parser.parse_args(argv)
    # A background job ignores it, and its tests could not be interrupted either.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rows = all_removals()
    removals = chosen(rows, arguments.rows, arguments.only)
    with tempfile.TemporaryDirectory(prefix="removals-") as directory:
        runs = Runs(
            TreeCopy(ROOT, Path(directory)),
            RESUMED,
            arguments.limit,
            resume=arguments.resume,
        )
        outcomes = run_all(removals, runs, requirements(PATH.read_text(encoding="utf-8")))
    return 0 if write(outcomes, arguments.json) else 1


def write(outcomes: Sequence[Outcome], path: Path) -> bool:
    """Write the result. Return False if a part's outcome contradicts its `unproved` mark."""
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    figures = {"rows": len({outcome.row for outcome in outcomes}), "removals": len(outcomes)} | {
        verdict: verdicts[verdict] for verdict in (NOTICED, SURVIVED, HUNG, BROKEN)
    }
    unexpected = [outcome for outcome in outcomes if not outcome.expected]
    result = report("removals", figures, {"unexpected": Target(value=len(unexpected), op="<=", target=0)})
    rows: dict[str, dict[str, str]] = {}
    for item in sorted(outcomes, key=lambda outcome: int(outcome.row[1:])):
        rows.setdefault(item.row, {})[item.part] = f"{item.verdict}: {item.why}" if item.why else item.verdict
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result | {"parts": rows}, indent=2) + "\n", encoding="utf-8")
    print(", ".join(f"{value} {name}" for name, value in figures.items()))
    for item in unexpected:
        print(f"UNEXPECTED {item.row} {item.part}: {item.verdict} {item.why}")
    return not unexpected


if __name__ == "__main__":
    sys.exit(main())
