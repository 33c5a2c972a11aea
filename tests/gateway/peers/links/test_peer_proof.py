"""Each proof between gateways is valid for one gateway and one use, and protects all messages of its session."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from gateway.contracts.wire import UnreadableMessageError
from gateway.peers.links.peer_proof import (
    CHALLENGE_S,
    IDENTITY_HEADER,
    PROOF_HEADER,
    SIGNED_HEADER,
    WINDOW,
    PeerIdentity,
    PeerProofs,
    PeerSession,
)
from kvstore.keys.keyring import Keyring

ME = PeerIdentity("aaaaaaaa", "us", "a")
STEPS = (b"before", b""), (b"before", b"after"), (b"after", b"before"), (b"after", b"")


@dataclass
class End:
    """One gateway, whose clock is `now`."""

    keyring: Keyring = field(default_factory=lambda: Keyring.of(b"a fleet secret"))
    me: PeerIdentity = ME
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.proofs = PeerProofs(self.me, self.keyring, clock=lambda: self.now)


def met(client: End, server: End) -> tuple[PeerSession, PeerSession]:
    """Return both ends of a session."""
    headers, ours = client.proofs.answer(server.proofs.challenge())
    theirs = server.proofs.accept(headers)
    assert theirs is not None
    return ours, theirs


def test_both_ends_prove_themselves_and_the_connecting_one_is_named() -> None:
    ours, theirs = met(End(), End())
    assert theirs.peer == ME
    assert ours.welcome == theirs.welcome != ours.proof.encode()


def test_a_proof_is_rejected_at_another_gateway_and_on_reuse() -> None:
    client, server, other = End(), End(), End()
    headers, _ = client.proofs.answer(server.proofs.challenge())
    assert other.proofs.accept(headers) is None
    assert server.proofs.accept(headers) is not None
    assert server.proofs.accept(headers) is None


def test_a_challenge_is_valid_whatever_the_other_gateways_clock() -> None:
    client, server = End(now=0.0), End()
    in_time, late = (client.proofs.answer(server.proofs.challenge())[0] for _ in range(2))
    server.now += CHALLENGE_S
    assert server.proofs.accept(in_time) is not None
    server.now += 0.01
    assert server.proofs.accept(late) is None
    # An answered challenge is forgotten with those that could repeat it.
    server.now += CHALLENGE_S
    assert server.proofs.accept(in_time) is None
    assert not server.proofs._answered


@pytest.mark.parametrize("forged", ["", "x", "0" * 112, "f" * 112, "0" * 111 + "é", "-" * 112])
def test_a_challenge_that_the_gateway_did_not_issue_is_rejected(forged: str) -> None:
    headers, _ = End().proofs.answer(forged)
    assert End().proofs.accept(headers) is None


@pytest.mark.parametrize(
    "change",
    [
        {PROOF_HEADER: ""},
        {PROOF_HEADER: "a.b"},
        {PROOF_HEADER: "..."},
        {IDENTITY_HEADER: ""},
        {IDENTITY_HEADER: "not hex"},
        {IDENTITY_HEADER: "ff" * 100},
        {IDENTITY_HEADER: "ff" * 5000},
    ],
)
def test_unsigned_headers_are_rejected(change: dict[str, str]) -> None:
    client, server = End(), End()
    headers, _ = client.proofs.answer(server.proofs.challenge())
    assert server.proofs.accept({**headers, **change}) is None


def test_a_proof_covers_the_identity() -> None:
    client, impostor, server = End(), End(me=PeerIdentity("bbbbbbbb", "us")), End()
    headers, _ = client.proofs.answer(server.proofs.challenge())
    other, _ = impostor.proofs.answer(server.proofs.challenge())
    assert server.proofs.accept({**headers, IDENTITY_HEADER: other[IDENTITY_HEADER]}) is None


@pytest.mark.parametrize("client", range(4))
@pytest.mark.parametrize("server", range(4))
def test_gateways_up_to_one_rotation_step_apart_accept_each_other(client: int, server: int) -> None:
    ours, theirs = End(Keyring.of(*STEPS[client])), End(Keyring.of(*STEPS[server]))
    headers, session = ours.proofs.answer(theirs.proofs.challenge())
    accepted = theirs.proofs.accept(headers)
    knows = STEPS[client][0] in STEPS[server]
    assert (accepted is not None) == knows
    assert knows or abs(client - server) > 1
    if accepted is not None:
        assert accepted.welcome == session.welcome
        counted = {purpose: (use.count, use.who) for purpose, use in theirs.keyring.uses.items()}
        by_other = STEPS[client][0] != STEPS[server][0]
        assert counted == ({"connections of gateways": (1, "a")} if by_other else {})


def test_messages_are_accepted_only_in_order_and_unchanged() -> None:
    ours, theirs = met(End(), End())
    first, second = (ours.from_client.seal(text) for text in (b"first", b"second"))
    for other in (second, first[:-1] + b"!", b"", first[:10], theirs.from_server.seal(b"first")):
        fresh, _ = met(End(), End())
        with pytest.raises(UnreadableMessageError):
            fresh.from_client.open(other)
    assert theirs.from_client.open(first) == b"first"
    assert theirs.from_client.open(second) == b"second"
    with pytest.raises(UnreadableMessageError):
        theirs.from_client.open(second)


def test_a_signed_request_is_accepted_once_and_only_by_its_gateway() -> None:
    client, server, other = End(), End(), End()
    ours, theirs = met(client, server)
    met(client, other)
    headers = ours.headers(b"head")
    assert other.proofs.proved(headers) is None
    assert server.proofs.proved({**headers, SIGNED_HEADER: b"heat".hex()}) is None
    assert server.proofs.proved(headers) == ME
    assert server.proofs.proved(headers) is None
    unused = ours.headers(b"head")
    server.proofs.end(theirs)
    assert server.proofs.proved(unused) is None


def test_signed_requests_can_arrive_in_any_order_within_the_window() -> None:
    server = End()
    ours, _ = met(End(), server)
    made = [ours.headers(b"%d" % number) for number in range(WINDOW + 1)]
    rest = made[1:-1]
    random.Random(1).shuffle(rest)
    assert server.proofs.proved(made[-1]) == ME
    assert server.proofs.proved(made[0]) is None, "it is too far behind"
    assert all(server.proofs.proved(item) == ME for item in rest)
    assert not any(server.proofs.proved(item) for item in made)


@pytest.mark.parametrize("number", ["", "x", "1" * 17, "-1", "１"])
def test_a_signed_request_without_a_sequence_number_is_rejected(number: str) -> None:
    server = End()
    ours, _ = met(End(), server)
    name, _, signature = ours.headers(b"head")[PROOF_HEADER].split(".")
    assert server.proofs.proved({PROOF_HEADER: f"{name}.{number}.{signature}", SIGNED_HEADER: b"head".hex()}) is None
