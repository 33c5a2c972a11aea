"""Protocol between nodes and their clients: a header of 20 bytes, a msgpack body, and payload bytes.

The body is one of the structs below. The header states the lengths of body and payload. Both are limited, and checked
before any of their bytes are read.
"""

from __future__ import annotations

import struct
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from kvstore.keys.payload_key import KEY_BYTES
from kvstore.tiers.block_facts import CHECKSUM_BYTES, BlockFacts, Medium

_HEAD = struct.Struct(">4sHHIQ")
HEAD_BYTES = _HEAD.size
_MAGIC, _VERSION = b"SYKV", 1
MAX_BODY_BYTES = 1 << 20
MAX_PAYLOAD_BYTES = 64 << 20
MAX_KEYS = 4096
MAX_ID_CHARACTERS = 128
MAX_NAME_CHARACTERS = 64
MAX_GREETING_BYTES = 512
"""Limit of a body before a peer has proved that it has the secret. Until then no payload is accepted."""

CacheHint = Literal["default", "ephemeral", "context_cache"]
"""A request's hint about the value of its prompt (Mooncake §5.2)."""


class FrameError(ValueError):
    """The bytes are not a valid frame or exceed the limits. The connection is no longer usable."""


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


class Challenge(_Message, tag="challenge", frozen=True):
    """The server's first message."""

    nonce: bytes


class Hello(_Message, tag="hello", frozen=True):
    """The client's response: its own nonce, and a proof that it has the secret."""

    nonce: bytes
    proof: bytes
    name: Annotated[str, Meta(max_length=MAX_NAME_CHARACTERS)] = ""
    """The client's name in the node's counts. A client with the secret can choose any name."""


class Welcome(_Message, tag="welcome", frozen=True):
    """The server's proof. A restarted node has a new incarnation."""

    proof: bytes
    node_id: str
    incarnation: int


class Lookup(_Message, tag="lookup", frozen=True):
    """Query which of these blocks are present."""

    keys: list[bytes]


class Get(_Message, tag="get", frozen=True):
    """Send as many of the first blocks as fit into `max_bytes`, at least one. With `length`, only that part of each."""

    keys: list[bytes]
    max_bytes: int
    priority: int = 0
    bytes_per_s: float = 0.0
    """The client's measured rate of its link to the node, for display. 0 before the first measurement."""
    offset: Annotated[int, Meta(ge=0, le=MAX_PAYLOAD_BYTES)] = 0
    """Begin of the part in bytes. A part with an offset continues a read, and counts as no further use."""
    length: Annotated[int, Meta(ge=0, le=MAX_PAYLOAD_BYTES)] = 0
    """Bytes of the part, 0 for whole blocks. A block that ends before its part is missing."""


class Put(_Message, tag="put", frozen=True):
    """Store blocks, whose concatenated bytes follow, in a single transaction."""

    blocks: list[BlockFacts]
    hint: CacheHint = "default"
    pin_s: float = 0.0
    """How long a context cache is pinned."""


class Allocate(_Message, tag="allocate", frozen=True):
    """Lock the reused blocks and make room for the new ones."""

    tx_id: str
    reused: list[bytes]
    new: list[BlockFacts]
    lease_s: float


class Write(_Message, tag="write", frozen=True):
    """Fill allocated blocks. Their bytes follow."""

    tx_id: str
    keys: list[bytes]
    checksums: list[bytes]


class Commit(_Message, tag="commit", frozen=True):
    """Make the blocks of a transaction visible."""

    tx_id: str


class Abort(_Message, tag="abort", frozen=True):
    """Abort a transaction."""

    tx_id: str


class Pin(_Message, tag="pin", frozen=True):
    """Pin blocks for this long. 0 ends the pin."""

    keys: list[bytes]
    seconds: float


class Purge(_Message, tag="purge", frozen=True):
    """Delete and overwrite a tenant's blocks."""

    tenant: str


class Suspect(_Message, tag="suspect", frozen=True):
    """A block arrived with a wrong checksum: verify all its copies."""

    key: bytes


class Describe(_Message, tag="describe", frozen=True):
    """Request facts of the blocks with these routing keys, in this order. The response is a page of any length."""

    routing_keys: list[int]


class Pull(_Message, tag="pull", frozen=True):
    """Fetch blocks from another node, with transactions on both. Blocks that are only on SSD are promoted to DRAM."""

    holder: str
    """Source node. Empty: fetch none."""
    blocks: list[BlockFacts]
    priority: int = 0
    expected_s: float = 0.0
    """Seconds until the blocks are expected to be used, if an advisory announced them. They use only space that is
    free or whose blocks are also on SSD.
    """
    keep_s: float = 0.0
    """How long that expectation is kept. 0: no advisory announced the blocks."""


class Shrink(_Message, tag="shrink", frozen=True):
    """Drop copies of a prompt's blocks, which the holder keeps, except those read in the last seconds.

    The node first verifies the holder's copies, and keeps them locked while it drops its own.
    """

    holder: str
    keys: list[bytes]
    unread_s: float


class ContentsPage(_Message, tag="page", frozen=True):
    """Request a page of the node's contents with numbers above this one."""

    after: int
    limit: int


class Blocks(_Message, tag="blocks", frozen=True):
    """Lengths of the sent blocks or parts, and checksums of whole blocks.

    A length of −1 means missing. If there are fewer than requested, request the others again.
    """

    lengths: list[int]
    checksums: list[bytes]


class Held(_Message, tag="held", frozen=True):
    """Length and tiers of each block. Without tiers, the block is missing."""

    blocks: list[tuple[int, list[Medium]]]


class PageOf(_Message, tag="page_of", frozen=True):
    """Blocks with their tiers, the number to continue from, and how many event batches were published before."""

    blocks: list[tuple[BlockFacts, list[Medium]]]
    next_after: int
    events: int


class Done(_Message, tag="done", frozen=True):
    """The operation succeeded for this number of blocks. `present` blocks existed before."""

    count: int = 0
    present: list[bytes] = []


class TransferRejected(_Message, tag="rejected", frozen=True):
    """The operation was rejected without changes. The reason is one of a few codes."""

    reason: str
    keys: list[bytes] = []


Request = (
    Lookup
    | Get
    | Put
    | Allocate
    | Write
    | Commit
    | Abort
    | Pin
    | Purge
    | Suspect
    | Describe
    | Pull
    | Shrink
    | ContentsPage
)
Reply = Blocks | Held | PageOf | Done | TransferRejected
Message = Challenge | Hello | Welcome | Request | Reply

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(message: Message, payload_bytes: int = 0) -> bytes:
    """Return header and body of a frame. Raises FrameError if its receiver would reject it."""
    body = _encoder.encode(message)
    # Its receiver would close the connection over it.
    if len(body) > MAX_BODY_BYTES or payload_bytes > MAX_PAYLOAD_BYTES:
        raise FrameError(f"{len(body)} bytes of body and {payload_bytes} of payload are over the limits")
    return _HEAD.pack(_MAGIC, _VERSION, 0, len(body), payload_bytes) + body


def decode_head(head: bytes | bytearray | memoryview, *, greeting: bool = False) -> tuple[int, int]:
    """Return the lengths of body and payload. Raises FrameError unless the header is valid and within the limits."""
    if len(head) != HEAD_BYTES:
        raise FrameError(f"a head has {HEAD_BYTES} bytes, not {len(head)}")
    magic, version, _reserved, body_bytes, payload_bytes = _HEAD.unpack(head)
    if magic != _MAGIC or version != _VERSION:
        raise FrameError("not the protocol of a node, or another version of it")
    max_body, max_payload = (MAX_GREETING_BYTES, 0) if greeting else (MAX_BODY_BYTES, MAX_PAYLOAD_BYTES)
    if body_bytes > max_body or payload_bytes > max_payload:
        raise FrameError(f"{body_bytes} bytes of body or {payload_bytes} of payload are over the limits")
    return body_bytes, payload_bytes


def decode(body: bytes | bytearray | memoryview, payload_bytes: int = 0) -> Message:
    """Return the message in a body. Raises FrameError on garbage and on inconsistent messages."""
    try:
        message = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"not a message of a node: {error}") from None
    fault = _fault(message, payload_bytes)
    if fault:
        raise FrameError(fault)
    return message


def _fault(message: Message, payload_bytes: int) -> str:
    """Return the error in a message with correct types, empty if there is none."""
    keys: list[bytes] = getattr(message, "keys", [])
    blocks: list[BlockFacts] = []
    match message:
        case Put() | Pull():
            blocks = message.blocks
        case Allocate():
            blocks, keys = message.new, message.reused
        case Describe():
            if len(message.routing_keys) > MAX_KEYS or not all(0 < key < 1 << 64 for key in message.routing_keys):
                return f"more than {MAX_KEYS} keys, or one that has not 64 bits"
    if len(getattr(message, "tx_id", "")) > MAX_ID_CHARACTERS:
        return f"a transaction's id has at most {MAX_ID_CHARACTERS} characters"
    if len(keys) + len(blocks) > MAX_KEYS or any(len(key) != KEY_BYTES for key in keys):
        return f"more than {MAX_KEYS} keys, or one that is not of {KEY_BYTES} bytes"
    block_fault = next((fault for facts in blocks if (fault := facts.fault(MAX_PAYLOAD_BYTES))), "")
    return block_fault or _payload_fault(message, payload_bytes)


def _payload_fault(message: Message, payload_bytes: int) -> str:
    expected = 0
    match message:
        case Put():
            expected = sum(facts.length for facts in message.blocks)
        case Blocks():
            expected = sum(length for length in message.lengths if length > 0)
            if len(message.lengths) != len(message.checksums):
                return "lengths and checksums are not of the same number"
        case Write():
            # The transaction's allocation determines the payload's length.
            expected = payload_bytes
            if len(message.keys) != len(message.checksums):
                return "keys and checksums are not of the same number"
            if any(len(checksum) != CHECKSUM_BYTES for checksum in message.checksums):
                return f"a checksum is not of {CHECKSUM_BYTES} bytes"
    if payload_bytes != expected:
        return f"{payload_bytes} bytes of payload were announced, {expected} belong to the message"
    return ""
