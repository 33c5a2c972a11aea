"""What the audit writes down, and what it leaves out."""

from __future__ import annotations

from controlplane.services.audit import REDACTED, redacted


def test_texts_under_secret_names_are_left_out_and_numbers_are_not() -> None:
    cost = {"per_token_s": 1e-5, "per_token_squared_s": 2e-9, "max_tokens": 64, "sticky_token": True}
    told = redacted({"cost": [cost], "password": "p", "deep": {"webhook_secret": "s", "bearer": "b", "api_token": ""}})
    assert told["cost"] == [cost]
    assert told["password"] == REDACTED
    assert set(told["deep"].values()) == {REDACTED}
