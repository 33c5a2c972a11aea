"""The search library behind one adapter: Optuna's multi-objective tree-structured Parzen estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import optuna
from optuna.samplers import TPESampler
from optuna.study import StudyDirection
from optuna.trial import Trial

from planning.adviser.search_space import Dimension, Point
from routing.policy.policy_document import Parameter

_GOALS = (StudyDirection.MAXIMIZE,) * 3


class PolicySampler:
    """Suggests points of the search space and learns from their results. Mutable state: the study.

    The same seed and results give the same points.
    """

    def __init__(self, space: Sequence[Dimension], starting: Sequence[Point], seed: int) -> None:
        # Its messages are about single trials; the caller reports the search.
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space = space
        self._study = optuna.create_study(
            directions=_GOALS, sampler=TPESampler(seed=seed, n_startup_trials=len(starting))
        )
        for point in starting:
            self._study.enqueue_trial(self._encoded(point))

    def suggest(self, count: int) -> list[tuple[Trial, Point]]:
        """Return the next points, each with the trial that takes its result."""
        return [(trial, self._point(trial)) for trial in (self._study.ask() for _ in range(count))]

    def learn(self, trial: Trial, result: tuple[float, float, float]) -> None:
        """Record the point's on-time shares by requests and by tokens, and its utility."""
        self._study.tell(trial, result)

    def _point(self, trial: Trial) -> Point:
        # Any: a choice of Optuna may be None, ours are not.
        point: dict[str, Any] = {}
        for item in self._space:
            if not item.applies(point):
                continue
            if item.choices:
                point[item.path] = trial.suggest_categorical(item.key, item.choices)
            elif item.whole:
                point[item.path] = trial.suggest_int(item.key, int(item.low), int(item.high), log=item.log)
            else:
                point[item.path] = trial.suggest_float(item.key, item.low, item.high, log=item.log)
        return point

    def _encoded(self, point: Point) -> dict[str, Parameter]:
        return {item.key: point[item.path] for item in self._space if item.applies(point)}
