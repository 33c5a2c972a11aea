"""Keys derived from a shared secret during its rotation: one secret is used, and a second one is also accepted.

A process signs, seals, and derives with the secret that it *uses*. It verifies proofs with the used secret and with the
one that it *also* accepts, so processes that differ by one step of a rotation understand each other (decision 56).

A secret is stretched with scrypt once per process. Everything that leaves the process is derived from the result, so a
certificate, salt, or proof allows only slow tests of a guessed secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from hashlib import blake2b, scrypt

MIN_CHARACTERS = 32
MIN_DIFFERENT = 8
_SCRYPT_N, _SCRYPT_R, _SCRYPT_P = 1 << 15, 8, 1
"""Takes 32 MiB, and about 0.1 s of one core."""
_KEY_BYTES = 32
_FINGERPRINT_BYTES = 4
FLEET, KV, SESSIONS = "fleet", "kv", "sessions"
"""Kinds of secrets. The same text in two settings yields different keys and fingerprints."""


def is_weak(secret: str) -> bool:
    """Return whether a secret is short, has few distinct characters, or is a well-known insecure one of Django's."""
    return len(secret) < MIN_CHARACTERS or len(set(secret)) < MIN_DIFFERENT or secret.startswith("django-insecure-")


class SecretKey:
    """One stretched secret."""

    __slots__ = ("_master", "fingerprint")

    def __init__(self, master: bytes) -> None:
        self._master = master
        self.fingerprint = self.derive("fingerprint", _FINGERPRINT_BYTES).hex()
        """Identifies the secret for operators; 8 hex digits."""

    def derive(self, purpose: str, size: int = _KEY_BYTES) -> bytes:
        """Return the key for one purpose. Keys of different purposes do not reveal each other."""
        return blake2b(purpose.encode(), key=self._master, digest_size=size).digest()


@lru_cache(maxsize=64)
def stretched(secret: bytes, kind: str = FLEET) -> SecretKey:
    """Return the secret's key. The first call takes about 0.1 s."""
    # Not random: all processes that share the secret must derive the same keys from it alone.
    salt = f"headway {kind} secret".encode()
    # OpenSSL allows 32 MiB by default, which is what these parameters need without any overhead.
    cost = {"n": _SCRYPT_N, "r": _SCRYPT_R, "p": _SCRYPT_P, "maxmem": 2 * 128 * _SCRYPT_N * _SCRYPT_R}
    return SecretKey(scrypt(secret, salt=salt, dklen=_KEY_BYTES, **cost))


class AlsoUse:
    """Uses of the also-accepted secret. Mutable."""

    __slots__ = ("count", "newest_at", "who")

    def __init__(self) -> None:
        self.count = 0
        self.newest_at = 0.0
        self.who = ""
        """Sender of the latest use."""


class Keys:
    """The keys for one purpose. `used` signs, and all of them verify."""

    __slots__ = ("_note", "every", "used")

    def __init__(self, every: tuple[bytes, ...], note: Callable[[str], None]) -> None:
        """Set the keys. `note` is called with the sender of a proof that uses another key than the used one."""
        self._note = note
        self.every = every
        self.used = every[0]

    def matching(self, holds: Callable[[bytes], bool], who: str = "") -> bytes | None:
        """Return the first key for which `holds` is true, or None. A use of the also-accepted secret is counted.

        `who` is the sender of the proof.
        """
        for key in self.every:
            if holds(key):
                if key is not self.used:
                    self._note(who)
                return key
        return None


class Keyring:
    """The secrets of one kind in a process. Mutable: the uses of `also`."""

    __slots__ = ("_uses", "_wall", "also", "kind", "used")

    def __init__(
        self, used: SecretKey, also: SecretKey | None = None, kind: str = FLEET, wall: Callable[[], float] = lambda: 0.0
    ) -> None:
        """Set the secrets. `wall` returns Unix seconds."""
        self.kind, self._wall = kind, wall
        self.used = used
        self.also = also
        """The also-accepted secret. None: only `used` is accepted."""
        self._uses: dict[str, AlsoUse] = {}

    @classmethod
    def of(
        cls, secret: bytes, also: bytes = b"", kind: str = FLEET, wall: Callable[[], float] = lambda: 0.0
    ) -> Keyring:
        """Return the keyring of these secrets. An empty `also` means none."""
        used = stretched(secret, kind)
        # The same secret twice would count every use as one of the other.
        return cls(used, stretched(also, kind) if also and also != secret else None, kind, wall)

    @property
    def every(self) -> tuple[SecretKey, ...]:
        """All accepted secrets, the used one first."""
        return (self.used,) if self.also is None else (self.used, self.also)

    @property
    def uses(self) -> Mapping[str, AlsoUse]:
        """Uses of the also-accepted secret, by purpose."""
        return self._uses

    def keys(self, purpose: str) -> Keys:
        """Return the keys for one purpose."""
        return Keys(tuple(secret.derive(purpose) for secret in self.every), partial(self._note, purpose))

    def _note(self, purpose: str, who: str) -> None:
        use = self._uses.setdefault(purpose, AlsoUse())
        use.count, use.newest_at, use.who = use.count + 1, self._wall(), who
