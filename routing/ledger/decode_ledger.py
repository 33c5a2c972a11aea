"""Running decodes per engine: their start times for admission's predictions, and the cost of adding one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter

import msgspec

from routing.cost.cost_model import DecodeCost
from routing.policy.policy_document import RoutingPolicy
from routing.values.inference_request import InferenceRequest

_FIRST_DECODE_S = 10.0
"""Assumed duration of a decode before any has ended."""
_FIRST_CONTEXT_TOKENS = 4096.0
_MEMORY = 0.98
"""Weight that older observations keep with each new one."""

_ON_TIME = 0.75
"""Share of the TPOT objective that a step without prefills can use and still count as on time. Prefills use the
remainder.
"""


class DecodeRates(msgspec.Struct, frozen=True, gc=False):
    """Cost of one request's answers on an engine, in equivalent seconds of delay to first token.

    A step takes T(n, C) = base + s·n + c·C for n answers that attend to C tokens. Adding q answers to a prompt of L
    tokens makes each step longer by `own_s` = q·(s + c·L) for all n, and the new answers' steps are longer by s·n + c·C
    than on an idle engine. Together they cost `share`·(s·n + c·C + n·`own_s`), where a time over the TPOT objective
    weighs as much as one over the TTFT objective. The step time beyond the objective is added, for all answers that it
    makes late.
    """

    per_answer_s: float
    """`share`·(s + `own_s`), for each answer in flight."""
    per_token_s: float
    """`share`·c, for each token that these answers attend to."""
    usual_s: float
    """Maximum sum of both terms without a late token."""
    share: float
    own_s: float
    spare_s: float
    """How much longer than on an idle engine a step can be before the request arrives. Beyond it, answers are late."""
    sequences: int
    answer_s: float
    """Expected time of the request's answers."""
    spread: float
    """Weight of answers relative to first tokens, 0..1."""

    def parts(self, answers: int, context_tokens: int, lacking_tokens: float) -> tuple[float, float, float]:
        """Return the cost on an engine with `answers` in flight: of longer steps, of late steps, and of missing memory.

        Missing memory is expected to become free as answers end, evenly over the duration of one answer.
        """
        if not self.share:
            return 0.0, 0.0, 0.0
        decode_s = answers * self.per_answer_s + context_tokens * self.per_token_s
        late_s = memory_s = 0.0
        over_s = decode_s / self.share - answers * self.own_s - self.spare_s
        if over_s > 0.0:
            # All answers' lateness with this request, less that of the others without it.
            late_s = (answers + self.sequences) * over_s - answers * max(over_s - self.own_s, 0.0)
        if lacking_tokens > 0.0:
            memory_s = self.answer_s * min(1.0, lacking_tokens / max(context_tokens, 1))
        return decode_s, self.share * late_s, memory_s


class DecodePrice:
    """Cost of a pool's answers for the requests that share their engine. Mutable: its settings and learned figures."""

    def __init__(self) -> None:
        self.answer_s = _FIRST_DECODE_S
        self.elsewhere = False
        """Whether other engines decode: in a pool with roles, a placement chooses only the prefill engine."""
        self.adopt(RoutingPolicy())

    def adopt(self, policy: RoutingPolicy) -> None:
        """Estimate by this policy."""
        self._cost = DecodeCost.of(policy.decode_cost)
        self._tpot_slo_s, self._weight = policy.tpot_slo_s, policy.decode_weight

    def rates(self, request: InferenceRequest, learned: DecodeCost | None, *, alike: bool = True) -> DecodeRates:
        """Return the rates for a request. `learned` is the cost of the engine's kind, None to use the policy's.

        If engines are not `alike`, each has its own cost, so no sum counts as usual. If answers take less time than the
        TTFT objective, TPOT matters proportionally less: the rate approaches zero with the length of the answers.
        """
        cost = learned or self._cost
        tpot_s = request.tpot_slo_s or self._tpot_slo_s
        sequences, answer_s, ttft_s = request.sequences, self.answer_s, request.ttft_slo_s
        if request.max_output_tokens and answer_s > (longest_s := (request.max_output_tokens - 1) * tpot_s):
            answer_s = longest_s
        sequence_s, token_s = cost.per_sequence_s, cost.per_context_token_s
        own_s = sequences * (sequence_s + token_s * request.prompt_tokens)
        # min(F, D) / P in decision 59.
        share = self._weight * (answer_s if answer_s < ttft_s else ttft_s) / tpot_s
        if self.elsewhere or not sequences:
            share = 0.0
        spare_s = _ON_TIME * tpot_s - cost.base_s - own_s
        per_answer_s, token_s = share * (sequence_s + own_s), share * token_s
        # By position, in the order of the fields: each decision makes one.
        usual_s, spread = share * spare_s if alike else -1.0, min(1.0, share * tpot_s / ttft_s)
        return DecodeRates(per_answer_s, token_s, usual_s, share, own_s, spare_s, sequences, answer_s, spread)


class DecodeBook:
    """Requests between their first token and their end, by target, in the order of their first tokens.

    Mutable state: `_starts` (per target, sorted (time, request id), once for each answer), `_where` (request id →
    target, time, answers), and the running means of a decode's duration and of the tokens that it attends to.
    """

    def __init__(self, price: DecodePrice | None = None) -> None:
        """Start without decodes. `price`, if given, learns the duration of answers."""
        self._price = price
        self._starts: dict[int, list[tuple[float, str]]] = {}
        self._where: dict[str, tuple[int, float, int]] = {}
        self._decode_s: float | None = None
        self._context_tokens: float | None = None

    def __len__(self) -> int:
        return len(self._where)

    @property
    def decode_s(self) -> float:
        """Recent mean of the seconds from first token to end of answer."""
        return _FIRST_DECODE_S if self._decode_s is None else self._decode_s

    @property
    def context_tokens(self) -> float:
        """Recent mean of the prompt tokens of a decoding request."""
        return _FIRST_CONTEXT_TOKENS if self._context_tokens is None else self._context_tokens

    def begin(self, request_id: str, target: int, context_tokens: int, now: float, sequences: int = 1) -> None:
        """Record the first token of a request with `sequences` answers.

        A request that already decodes is not counted again.
        """
        if request_id in self._where or not sequences:
            return
        starts = self._starts.setdefault(target, [])
        for _ in range(sequences):
            # By id at equal moments, so that `end` finds it.
            insort(starts, (now, request_id))
        self._where[request_id] = (target, now, sequences)
        self._context_tokens = _mean(self._context_tokens, float(context_tokens))

    def end(self, request_id: str, now: float, *, finished: bool) -> None:
        """Record the end of a decode. Only a finished one updates the mean duration. Unknown ids are ignored."""
        entry = self._where.pop(request_id, None)
        if entry is None:
            return
        target, start, sequences = entry
        starts = self._starts[target]
        first = bisect_left(starts, (start, request_id))
        del starts[first : first + sequences]
        if not starts:
            del self._starts[target]
        if finished:
            self._decode_s = _mean(self._decode_s, max(0.0, now - start))
            if self._price is not None:
                self._price.answer_s = self._decode_s

    def forget_target(self, target: int) -> None:
        """Drop the decodes on a removed target."""
        for _, request_id in self._starts.pop(target, []):
            self._where.pop(request_id, None)

    def decoding(self, target: int) -> int:
        """Return the number of answers being decoded on the target."""
        return len(self._starts.get(target, ()))

    def decoding_after(self, target: int, moment: float) -> int:
        """Return how many of the target's decodes started after this time."""
        starts = self._starts.get(target)
        # Greater than any id, so that all starts of this moment are before it.
        return len(starts) - bisect_right(starts, (moment, "\U0010ffff")) if starts else 0

    def check(self) -> None:
        """Raise AssertionError if the tables disagree."""
        counted = Counter((request_id, target, at) for target, row in self._starts.items() for at, request_id in row)
        if counted != {(name, target, at): count for name, (target, at, count) in self._where.items()}:
            raise AssertionError("starts and places differ")
        for target, row in self._starts.items():
            if row != sorted(row) or not row:
                raise AssertionError(f"target {target}: starts are out of order")


def _mean(before: float | None, value: float) -> float:
    return value if before is None else _MEMORY * before + (1 - _MEMORY) * value
