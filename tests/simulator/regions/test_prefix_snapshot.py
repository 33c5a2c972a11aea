from simulator.regions.prefix_snapshot import SimulatedPrefixSnapshot, published_match
from simulator.regions.prompt import EMPTY, PromptSegment


def test_the_prefix_common_to_all_prompts_stays_and_the_oldest_leaves_are_evicted() -> None:
    snapshot = SimulatedPrefixSnapshot(limit=3)
    prompts = [EMPTY.then(PromptSegment(1, 450), PromptSegment(number, 100)) for number in (2, 3, 4)]
    for prompt in prompts:
        snapshot.note(prompt)
    assert snapshot.keys() == {1, 3, 4}
    assert [published_match(prompt, snapshot.keys()) for prompt in prompts] == [450, 550, 550]
    assert published_match(EMPTY.then(PromptSegment(9, 5)), snapshot.keys()) == 0
