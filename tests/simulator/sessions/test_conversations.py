import random
from itertools import count
from statistics import fmean, median

import pytest

from simulator.sessions.conversations import Conversations


def people(many: int, **options: object) -> list[Conversations]:
    ids = count()
    return [Conversations(random.Random(seed), ids, 128_000, **options) for seed in range(many)]  # type: ignore[arg-type]


def conversations(person: Conversations, turns: int) -> dict[int, int]:
    """Return the number of turns in each of a person's conversations except the last."""
    had: dict[int, int] = {}
    last = -1
    for _ in range(turns):
        last = person.next_turn().session.session_id
        had[last] = had.get(last, 0) + 1
    del had[last]
    return had


def test_the_share_of_multi_turn_conversations_matches_the_published_one() -> None:
    had = [turns for person in people(60, fresh=True) for turns in conversations(person, 400).values()]
    assert fmean(turns > 1 for turns in had) == pytest.approx(0.734, abs=0.02)
    assert fmean(had) == pytest.approx(6.2, rel=0.15)
    assert max(had) > 60


def test_lengths_and_times_match_the_published_ones() -> None:
    turns = [person.next_turn() for person in people(40) for _ in range(200)]
    assert fmean(turn.answer_tokens for turn in turns) == pytest.approx(264, rel=0.05)
    assert fmean(turn.prompt_tokens for turn in turns) == pytest.approx(90, rel=0.15)
    assert median(turn.prompt_tokens for turn in turns) == pytest.approx(25, abs=2)
    leads = [turn.lead_s or 0.0 for turn in turns]
    assert fmean(leads) == pytest.approx(11.3, rel=0.05)
    assert median(leads) == pytest.approx(6.9, rel=0.05)
    assert fmean(turn.after_s for turn in turns) == pytest.approx(61, rel=0.1)


def test_a_stationary_start_begins_in_the_middle_of_long_conversations() -> None:
    contexts = [sum(session.context_tokens for session in person.sessions()) for person in people(2_000)]
    assert 4_000 < fmean(contexts) < 7_000
    assert 1_000 < median(contexts) < 2_200


def test_a_fresh_start_has_no_caches() -> None:
    assert not any(person.sessions() for person in people(20, fresh=True))


def test_a_conversation_ends_before_its_context_would_be_too_long() -> None:
    person = Conversations(random.Random(1), count(), 2_000, fresh=True)
    for _ in range(500):
        turn = person.next_turn()
        assert turn.session.planned_tokens <= max(2_000, turn.prompt_tokens + turn.answer_tokens)


def test_a_given_lead_scales_the_typing_times() -> None:
    leads = [person.next_turn().lead_s or 0.0 for person in people(300, lead_s=2.0)]
    assert fmean(leads) == pytest.approx(2.0, rel=0.15)


def test_bursts_use_their_own_gap_distribution() -> None:
    gaps = [person.next_turn().after_s for person in people(200, bursts=True) for _ in range(20)]
    assert median(gaps) == pytest.approx(27, rel=0.15)


def test_a_prefill_workload_requests_one_token_at_the_times_of_the_conversations() -> None:
    turns = [person.next_turn() for person in people(20, prefill_only=True) for _ in range(100)]
    assert {(turn.prompt_tokens, turn.answer_tokens) for turn in turns} == {(1024, 1)}
    assert fmean(turn.after_s for turn in turns) == pytest.approx(61, rel=0.1)


def test_the_same_seed_produces_the_same_turns() -> None:
    def said() -> list[tuple[int, int, float]]:
        person = people(1)[0]
        turns = [person.next_turn() for _ in range(50)]
        return [(turn.prompt_tokens, turn.answer_tokens, turn.after_s) for turn in turns]

    assert said() == said()
