"""Valid settings that deserve a warning."""

from __future__ import annotations

from controlplane.policies.document.text import completed
from controlplane.policies.notes import notes_on, vain_settings


def test_defaults_have_no_notes() -> None:
    assert notes_on(completed({})) == ()


def test_setting_outside_its_usual_range_has_a_note_with_its_path() -> None:
    document = completed({"placement": {"name": "least_cost", "params": {"beta": 100}}, "max_wait_s": 1})
    assert [(note.path, note.message) for note in notes_on(document)] == [
        ("placement.params.beta", "100 is outside the usual 4 to 12 s per s"),
        ("max_wait_s", "1 is outside the usual 5 to 300 s"),
    ]


def test_settings_without_effect_in_any_live_pool_have_a_note() -> None:
    document = {"placement": {"name": "mooncake"}}
    assert [note.path for note in vain_settings(document)] == ["placement"]
    assert not list(vain_settings(completed({})))
