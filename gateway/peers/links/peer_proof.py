"""Mutual proof between two gateways that they hold a fleet secret, without sending it.

The listening gateway sends a challenge, which only its process can check. The connecting gateway answers with a proof
over the challenge and its identity, so that a stolen proof is useless at another gateway. Then the listening gateway
proves itself; until then, nothing is sent to it. Addresses are not part of the proof, because proxies and services can
translate them.

Both ends of a proved connection share a session. Without TLS, the session's key seals each message, so that a process
that relays the connection can neither add nor change messages. The key also signs requests sent outside the connection.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import blake2b

import msgspec

from gateway.contracts.wire import UnreadableMessageError, WireForm
from kvstore.keys.keyring import Keyring

IDENTITY_HEADER, CHALLENGE_HEADER = "x-headway-peer", "x-headway-peer-challenge"
PROOF_HEADER, SIGNED_HEADER = "x-headway-peer-proof", "x-headway-peer-signed"
CHALLENGE_S = 10.0
"""A challenge must be answered within this many seconds."""
WINDOW = 4096
"""A session's signed request this far behind the newest one counts as a repetition."""
SEAL_BYTES = 16
_NONCE_DIGITS, _TIME_DIGITS = 32, 16


class PeerIdentity(msgspec.Struct, frozen=True):
    """A gateway's identity: the tag of its ids (TaggedIds, new at each start), its region, and its node's name."""

    tag: str
    region: str
    name: str = ""
    key_space: str = ""
    """Fingerprint of its secret for block keys. Keys under another secret identify other blocks."""


_IDENTITY: WireForm[PeerIdentity] = WireForm(PeerIdentity, "a peer's identity", limit=4096)


class MessageSeal:
    """Seals the messages of one direction of a connection in order. Mutable: their count."""

    __slots__ = ("_count", "_key")

    def __init__(self, key: bytes | None) -> None:
        """`key` None: messages are sent unsealed, because TLS protects them."""
        self._key = key
        self._count = 0

    def seal(self, data: bytes) -> bytes:
        """Return the next message in wire format."""
        return data if self._key is None else self._next(data) + data

    def open(self, data: bytes) -> bytes:
        """Return the content of the next message; raise UnreadableMessageError for any other."""
        if self._key is None:
            return data
        body = data[SEAL_BYTES:]
        if not hmac.compare_digest(data[:SEAL_BYTES], self._next(body)):
            raise UnreadableMessageError("the peer did not send this, or not in this order")
        return body

    def _next(self, data: bytes) -> bytes:
        self._count += 1
        seal = blake2b(self._count.to_bytes(8, "little"), key=self._key or b"", digest_size=SEAL_BYTES)
        seal.update(data)
        return seal.digest()


class PeerSession:
    """State shared by both ends of a proved connection. Mutable: the numbers of the requests signed under it."""

    def __init__(self, name: str, peer: PeerIdentity, key: bytes, *, seals: bool) -> None:
        self.name = name
        self.peer = peer
        """The gateway that connected."""
        self.from_client, self.from_server = (
            MessageSeal(blake2b(end, key=key, digest_size=32).digest() if seals else None)
            for end in (b"messages of the client", b"messages of the server")
        )
        self._key = key
        self._newest = 0
        self._seen = 0
        """Bit n: the request n numbers before the newest one was seen."""

    @property
    def welcome(self) -> bytes:
        """Return the proof of the listening gateway."""
        return _mac(self._key, "server").encode()

    @property
    def proof(self) -> str:
        """Return the proof of the connecting gateway."""
        return _mac(self._key, "client")

    def headers(self, signed: bytes) -> dict[str, str]:
        """Return the headers of a request outside the connection, which prove `signed` once."""
        self._newest += 1
        said = signed.hex()
        return {PROOF_HEADER: f"{self.name}.{self._newest}.{self._signature(self._newest, said)}", SIGNED_HEADER: said}

    def takes(self, number: int, said: str, signature: str) -> bool:
        """Return whether the peer signed this, and the signature was not used before."""
        if not _equal(signature, self._signature(number, said)):
            return False
        behind = self._newest - number
        if behind < 0:
            # At most by the window: a shift by an arbitrary number would make an integer of as many bits.
            self._seen = (self._seen << min(-behind, WINDOW)) & ((1 << WINDOW) - 1)
            self._newest, behind = number, 0
        if behind >= WINDOW or self._seen >> behind & 1:
            return False
        self._seen |= 1 << behind
        return True

    def _signature(self, number: int, said: str) -> str:
        return _mac(self._key, f"request\n{number}\n{said}")


class PeerProofs:
    """One gateway's proofs, at both ends of connections.

    Mutable: the sessions of connections to us, and the challenges answered within the last CHALLENGE_S.
    """

    def __init__(
        self, me: PeerIdentity, keyring: Keyring, *, seals: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`seals`: whether messages are sealed one by one, which is unnecessary with TLS."""
        self._identity = _IDENTITY.encode(me).hex()
        self._me, self._seals = me, seals
        self._keys = keyring.keys("connections of gateways")
        self._clock = clock
        self._own_key = secrets.token_bytes(32)
        self._sessions: dict[str, PeerSession] = {}
        self._answered: dict[str, float] = {}

    # -- the gateway that connects

    def answer(self, challenge: str) -> tuple[dict[str, str], PeerSession]:
        """Return (headers that answer a challenge, the session that both ends then share)."""
        nonce = secrets.token_hex(_NONCE_DIGITS // 2)
        session = self._session(self._keys.used, challenge, nonce, self._identity, self._me)
        proof = f"{challenge}.{nonce}.{session.proof}"
        return {IDENTITY_HEADER: self._identity, PROOF_HEADER: proof}, session

    # -- the gateway that listens

    def challenge(self) -> str:
        """Return a challenge, which can be answered only once."""
        made = f"{int(self._clock() * 1000):0{_TIME_DIGITS}x}{secrets.token_hex(_NONCE_DIGITS // 2)}"
        return made + _mac(self._own_key, made)

    def accept(self, headers: Mapping[str, str]) -> PeerSession | None:
        """Return the session of the connecting gateway, None if it has not proved itself."""
        given = headers.get(PROOF_HEADER, "").split(".")
        identity = headers.get(IDENTITY_HEADER, "")
        if len(given) != 3 or not self._is_open(given[0]):
            return None
        challenge, nonce, proof = given
        with suppress(UnreadableMessageError, ValueError):
            peer = _IDENTITY.decode(bytes.fromhex(identity))

            def session_under(key: bytes) -> PeerSession:
                return self._session(key, challenge, nonce, identity, peer)

            key = self._keys.matching(lambda key: _equal(proof, session_under(key).proof), peer.name or peer.tag)
            if key is not None:
                session = session_under(key)
                self._sessions[session.name] = session
                self._answered[challenge] = self._clock()
                return session
        return None

    def end(self, session: PeerSession) -> None:
        """Accept no further requests under a session."""
        self._sessions.pop(session.name, None)

    def proved(self, headers: Mapping[str, str]) -> PeerIdentity | None:
        """Return the signer of a request outside its connection, None if it is a repetition or no connected peer signed
        it.
        """
        name, _, rest = headers.get(PROOF_HEADER, "").partition(".")
        number, _, signature = rest.partition(".")
        session = self._sessions.get(name)
        # A limit on the digits, because int() of thousands of them raises ValueError.
        if session is None or not number.isascii() or not number.isdecimal() or len(number) > 16:
            return None
        return session.peer if session.takes(int(number), headers.get(SIGNED_HEADER, ""), signature) else None

    def _is_open(self, challenge: str) -> bool:
        """Return whether we sent this challenge recently and it was not answered yet."""
        now = self._clock()
        while self._answered and now - next(iter(self._answered.values())) > CHALLENGE_S:
            del self._answered[next(iter(self._answered))]
        made, mac = challenge[: _TIME_DIGITS + _NONCE_DIGITS], challenge[_TIME_DIGITS + _NONCE_DIGITS :]
        # Before the time is read: only a challenge of our own is parsed.
        if challenge in self._answered or not _equal(mac, _mac(self._own_key, made)):
            return False
        return now - int(made[:_TIME_DIGITS], 16) / 1000 <= CHALLENGE_S

    def _session(self, key: bytes, challenge: str, nonce: str, identity: str, peer: PeerIdentity) -> PeerSession:
        mac = blake2b(_bytes(f"{challenge}\n{nonce}\n{identity}"), key=key, digest_size=32)
        name = challenge[_TIME_DIGITS : _TIME_DIGITS + _NONCE_DIGITS]
        return PeerSession(name, peer, mac.digest(), seals=self._seals)


def _mac(key: bytes, text: str) -> str:
    return blake2b(_bytes(text), key=key, digest_size=32).hexdigest()


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(_bytes(given), expected.encode())


def _bytes(text: str) -> bytes:
    # A header may have any bytes; those that are no UTF-8 become surrogates.
    return text.encode(errors="surrogatepass")
