"""The protocol of the decision chain: RegionDecider, OwnerDecider, Router.

Each link decides on a request itself or asks the next link. Links are pure: they read no clock and send nothing. They
return what the driver must do. The gateway drives the chain in real time, the simulator in virtual time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from routing.advisories.advised_routing import Advised
from routing.values.decision import ChainOutcome
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Observation


class Decider(Protocol):
    """One link of the chain. `now` is in seconds of the caller's monotonic clock and never decreases."""

    def place(
        self, request: InferenceRequest, now: float, *, hold: bool = True, excluded: frozenset[str] = frozenset()
    ) -> ChainOutcome:
        """Decide on a request. After Queued, a later call returns the request's outcome.

        Without `hold`, an engine is chosen at once. Engines in `excluded` are chosen only if no other accepts work.
        """

    def observe(self, observation: Observation, now: float) -> Sequence[ChainOutcome]:
        """Process an observation of a request; return the outcomes that follow. Unknown ids are ignored."""

    def advise(
        self, request: InferenceRequest, last_engine: str, lead_s: float, now: float, backlog: dict[str, float]
    ) -> Advised | None:
        """Reserve an engine for the next request of a session. Return None if advisories are off."""

    def withdraw(self, tenant_id: str, session_id: str) -> bool:
        """End the reservation of a session. Return whether it had one."""

    def tick(self, now: float) -> Sequence[ChainOutcome]:
        """Do the work that is due; return the outcomes."""

    def next_wake(self, now: float) -> float | None:
        """Return when `tick` next has work; None if nothing waits."""


NextT = TypeVar("NextT", bound=Decider)


class ChainLink(ABC, Generic[NextT]):
    """A link before the router. Whatever it has no part in, the next link does."""

    def __init__(self, chain: NextT) -> None:
        self._chain = chain

    @abstractmethod
    def place(
        self, request: InferenceRequest, now: float, *, hold: bool = True, excluded: frozenset[str] = frozenset()
    ) -> ChainOutcome:
        """Decide on a request, as Decider does."""

    @abstractmethod
    def observe(self, observation: Observation, now: float) -> list[ChainOutcome]:
        """Process an observation, as Decider does."""

    @abstractmethod
    def followed(self, outcomes: Iterable[ChainOutcome], now: float) -> list[ChainOutcome]:
        """Return what becomes of outcomes of the next link."""

    def tick(self, now: float) -> list[ChainOutcome]:
        """Do the next link's work that is due."""
        return self.followed(self._chain.tick(now), now)

    def next_wake(self, now: float) -> float | None:
        """Return when the next link has work."""
        return self._chain.next_wake(now)

    def advise(
        self, request: InferenceRequest, last_engine: str, lead_s: float, now: float, backlog: dict[str, float]
    ) -> Advised | None:
        """Reserve an engine of this gateway. The session's request may go elsewhere nevertheless."""
        return self._chain.advise(request, last_engine, lead_s, now, backlog)

    def withdraw(self, tenant_id: str, session_id: str) -> bool:
        """End the reservation of a session."""
        return self._chain.withdraw(tenant_id, session_id)
