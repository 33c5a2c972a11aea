"""Choose the decode engine: least expected time between tokens, among engines with memory for the request.

Mooncake's Algorithm 1 calls it SelectDecodingInstance (line 17) and leaves the rule open. §4.3 loads decode engines by
predicted TBT, and a decode engine accepts a request once its KV fits (§3.1, step 4). DualMap A.6 leaves the choice to
the framework, after that of the prefill engine.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from routing.cost.cost_model import DecodeCost
from routing.values import reasons
from routing.values.engine_pair import DecodeCandidate

KEPT = 3
"""Maximum candidates in a pair."""
ASSUMED_OUTPUT_TOKENS = 512
"""Maximum answer length for which memory is reserved: most answers stop earlier."""


class DecodeLoad(msgspec.Struct, frozen=True, gc=False):
    """One decode engine's load before the request arrives."""

    target: int
    engine_id: str
    batch: float
    context_tokens: float
    room_tokens: int | None
    cost: DecodeCost


class DecodeChoice(msgspec.Struct, frozen=True, gc=False):
    """The chosen target, and the best candidates, chosen one first."""

    target: int
    reason: str
    candidates: tuple[DecodeCandidate, ...]


def need_tokens(prompt_tokens: int, max_output_tokens: int, sequences: int = 1) -> int:
    """Return the KV memory in tokens that a request needs on its decode engine. All its answers share a prompt."""
    return prompt_tokens + sequences * min(max_output_tokens or ASSUMED_OUTPUT_TOKENS, ASSUMED_OUTPUT_TOKENS)


def scored(load: DecodeLoad, prompt_tokens: int, need: int) -> DecodeCandidate:
    """Return the load as a candidate that includes the request."""
    batch, context = load.batch + 1, load.context_tokens + prompt_tokens
    room = load.room_tokens
    return DecodeCandidate(
        load.engine_id,
        load.cost.seconds(batch, context),
        round(batch),
        round(context),
        room,
        room is None or need <= room,
    )


def choose_decoder(loads: Sequence[DecodeLoad], prompt_tokens: int, need: int, salt: int) -> DecodeChoice:
    """Return the best of `loads`, which must not be empty. If no engine has the memory, return the one with most.

    Such a request waits in the engine until others end. `salt`, which differs by prompt, breaks ties.
    """
    ranked = sorted(
        (
            (
                not candidate.fits,
                candidate.tpot_s if candidate.fits else -float(candidate.room_tokens or 0),
                load.target ^ salt,
                index,
            )
            for index, (load, candidate) in enumerate((load, scored(load, prompt_tokens, need)) for load in loads)
        )
    )
    best = [index for *_, index in ranked[:KEPT]]
    reason = reasons.LEAST_TPOT if len(loads) > 1 else reasons.ONLY_DECODER
    # Where even the first does not fit, none does.
    if ranked[0][0]:
        reason = reasons.MOST_ROOM
    kept = tuple(scored(loads[index], prompt_tokens, need) for index in best)
    return DecodeChoice(loads[best[0]].target, reason, kept)
