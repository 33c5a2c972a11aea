"""Arms of a trial: other placements that choose for a share of the sessions, next to the live one.

All arms of a pool share one fleet view, index, ledger, and queue, so they are compared under the same load. The queue's
settings (order, dispatch limits, admission) come from the live policy only: an arm only chooses engines. Without a
trial, a decision costs one check for None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from xxhash import xxh3_64_intdigest

from routing.placements.placement import KeptPlacement, Placement, learning_method
from routing.policy.policy_document import Stage
from routing.registry import PLACEMENTS, PolicyStageError, Table, build_placement, pair_problem
from routing.values.decision import Decision
from routing.values.feedback_events import FeedbackEvent
from routing.values.inference_request import InferenceRequest

LIVE = "live"
CANARY = "canary"
CONTROL = "control"
ARMS = (LIVE, CANARY, CONTROL)
"""Names of arms in decisions during a trial."""
MAX_ARMS = 4
_ALL = 1 << 64


class ArmEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One arm in a snapshot."""

    arm: str
    """canary or control."""
    trial_id: str
    """Salt of the assignment: another trial selects other sessions."""
    share: float
    """Share of the sessions, 0..1. As it grows, it keeps its sessions."""
    policy_version: int = 0
    placement: Stage


class Arm:
    """One arm in use."""

    __slots__ = ("_below", "_salt", "entry", "learn", "placement", "rebalances")

    def __init__(self, entry: ArmEntry, placement: Placement) -> None:
        self.entry = entry
        self.placement = placement
        self.learn = learning_method(placement)
        self.rebalances: bool = getattr(placement, "rebalance", False)
        # A bound on the hash: as the share grows, the sessions below the old bound stay below the new one.
        self._below = round(entry.share * _ALL)
        self._salt = f"{entry.trial_id}\0"

    def takes(self, request: InferenceRequest) -> bool:
        """Return whether the request's session belongs to this arm.

        A request without a session counts as a session by itself.
        """
        # A share of 1 needs no hash.
        if self._below >= _ALL:
            return True
        session = request.session_id
        # Not the prompt's first block: where all prompts begin alike, one arm would get every request.
        unit = f"{request.tenant_id}\0{session}" if session else request.request_id
        return xxh3_64_intdigest((self._salt + unit).encode("utf-8", "surrogatepass")) < self._below


class Arms:
    """The live placement and the trial arms. All state is mutable through its methods."""

    __slots__ = ("_listener", "_placements", "candidate_arms", "learn", "live", "live_rebalances", "own")

    def __init__(self, live: Placement, placements: Table = PLACEMENTS) -> None:
        self._placements = placements
        self._listener: Callable[[FeedbackEvent], None] | None = None
        self.candidate_arms: tuple[Arm, ...] | None = None
        """Trial arms in evaluation order, None if no trial is running."""
        self.own = LIVE
        """Arm named in decisions of the live placement: canary if the whole pool is on trial."""
        self.follow(live)

    def follow(self, live: Placement) -> None:
        """Use this placement for all requests outside the arms."""
        self.live = live
        self.live_rebalances: bool = getattr(live, "rebalance", False)
        self._wire_feedback()

    def built(self, entries: Sequence[ArmEntry], order: str) -> tuple[Arm, ...] | None:
        """Return these arms for a queue of this order, without using them. Raises PolicyStageError.

        If an arm's placement is already in use for the same trial, it keeps its learned state.
        """
        if len(entries) > MAX_ARMS:
            raise PolicyStageError(f"arms: {len(entries)} are more than {MAX_ARMS}")
        if len({entry.arm for entry in entries}) < len(entries):
            raise PolicyStageError("arms.arm: two arms have the same name")
        arms = []
        for entry in entries:
            if not 0 <= entry.share <= 1:
                raise PolicyStageError(f"arms.share: {entry.share} is not between 0 and 1")
            if problem := pair_problem(entry.placement.name, order, self._placements):
                raise PolicyStageError(problem)
            arms.append(Arm(entry, self._known(entry) or build_placement(entry.placement, self._placements)))
        return tuple(arms) or None

    def attempt(self, arms: tuple[Arm, ...] | None, own: str = "") -> None:
        """Use these arms (None: none).

        `own` is the pool's arm if the whole pool is on trial among the pools of its model.
        """
        # Empty, not None: decisions then carry the name `own`.
        self.candidate_arms = () if own and arms is None else arms
        self.own = own or LIVE
        self._wire_feedback()

    def listen(self, listener: Callable[[FeedbackEvent], None] | None) -> None:
        """Send every feedback event also to this listener, which places no request. None removes it."""
        self._listener = listener
        self._wire_feedback()

    def of(self, request: InferenceRequest) -> Arm | None:
        """Return the request's arm, None for the live policy."""
        for arm in self.candidate_arms or ():
            if arm.takes(request):
                return arm
        return None

    def name_of(self, request: InferenceRequest) -> str:
        """Return the name of the request's arm, empty if no trial is running."""
        if self.candidate_arms is None:
            return ""
        arm = self.of(request)
        return self.own if arm is None else arm.entry.arm

    def placement_of(self, request: InferenceRequest) -> Placement:
        """Return the placement for the request."""
        arm = self.of(request)
        return self.live if arm is None else arm.placement

    def signed(self, decision: Decision, request: InferenceRequest) -> Decision:
        """Return the decision with its arm, placement, and policy version set."""
        arm = self.of(request)
        if arm is None:
            return msgspec.structs.replace(decision, arm=self.own)
        entry = arm.entry
        return msgspec.structs.replace(
            decision, arm=entry.arm, placement=entry.placement.name, policy_version=entry.policy_version
        )

    @property
    def rebalances(self) -> bool:
        """Whether any active placement migrates queued requests."""
        return self.live_rebalances or any(arm.rebalances for arm in self.candidate_arms or ())

    def moves(self, decision: Decision) -> bool:
        """Return whether the decision's placement allows migrating its queued request."""
        for arm in self.candidate_arms or ():
            if arm.entry.arm == decision.arm:
                return arm.rebalances
        return self.live_rebalances

    def kept(self) -> bytes:
        """Return the live placement's learned state, empty if it keeps none."""
        return self.live.kept() if isinstance(self.live, KeptPlacement) else b""

    def resume(self, kept: bytes) -> None:
        """Let the live placement continue with a state that `kept` returned."""
        if kept and isinstance(self.live, KeptPlacement):
            self.live.resume(kept)

    def check(self) -> None:
        """Raise AssertionError unless arm names are distinct and every learning placement gets feedback."""
        arms = self.candidate_arms or ()
        if len({arm.entry.arm for arm in arms} | {self.own}) < len(arms) + 1:
            raise AssertionError("two arms have one name")
        learning = any(
            learning_method(placement) is not None for placement in (self.live, *(arm.placement for arm in arms))
        )
        if (learning or self._listener is not None) != (self.learn is not None):
            raise AssertionError("a placement that learns gets no feedback, or there is none to feed")

    def _known(self, entry: ArmEntry) -> Placement | None:
        for arm in self.candidate_arms or ():
            if arm.entry.trial_id == entry.trial_id and arm.entry.placement == entry.placement:
                return arm.placement
        return None

    def _wire_feedback(self) -> None:
        """Send every request's feedback to every arm, because they share the engines."""
        methods = [learning_method(self.live), *(arm.learn for arm in self.candidate_arms or ()), self._listener]
        wanting = [method for method in methods if method is not None]
        self.learn: Callable[[FeedbackEvent], None] | None = None
        if len(wanting) == 1:
            self.learn = wanting[0]
        elif wanting:
            self.learn = _to_all(tuple(wanting))


def _to_all(methods: tuple[Callable[[FeedbackEvent], None], ...]) -> Callable[[FeedbackEvent], None]:
    def learn(event: FeedbackEvent) -> None:
        for method in methods:
            method(event)

    return learn
