"""Scripts of the shared bus for the Redis server, and the names of its keys.

The scripts change the store and notify subscribers in one step, so that a reader that subscribes first receives either
the value or the message. The server orders a topic's values: a later arrival gets the higher version, whatever its
publisher's clock shows.
"""

from __future__ import annotations

import re

from kvstore.keys.keyring import SecretKey

_PREFIX_BYTES = 12
_PREFIX = re.compile("headway:[0-9a-f]{24}")

# "%.0f", because Lua's own conversion keeps 14 digits, and a version (microseconds since 1970) has 16.
PUBLISH = """
local stored = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or '-1')
local version = tonumber(ARGV[2])
if ARGV[5] == 'restore' then
  if stored >= version then return tostring(stored) end
elseif ARGV[5] == 'reseal' then
  if stored == version then redis.call('HSET', KEYS[2], ARGV[1], ARGV[2] .. ARGV[3]) end
  return tostring(stored)
elseif stored >= version then
  version = stored + 1
end
if stored < 0 and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[6]) then return '-1' end
local text = string.format('%.0f', version)
local frame = text .. ARGV[3]
redis.call('HSET', KEYS[1], ARGV[1], text)
redis.call('HSET', KEYS[2], ARGV[1], frame)
redis.call('PUBLISH', ARGV[4], frame)
return text
"""
"""KEYS versions, values; ARGV topic, version, rest of the frame, channel, mode, maximum number of topics.

Modes: "publish"; "restore" changes nothing if the server has this version or a newer one; "reseal" replaces the frame
of exactly this version.

Returns the resulting version, or -1 if there are too many topics.
"""

APPEND = """
if redis.call('SISMEMBER', KEYS[1], ARGV[1]) == 0 then
  if redis.call('SCARD', KEYS[1]) >= tonumber(ARGV[5]) then return '-1' end
  redis.call('SADD', KEYS[1], ARGV[1])
end
local id = redis.call('XADD', KEYS[2], '*', 'frame', ARGV[2])
local bytes = redis.call('HINCRBY', KEYS[3], ARGV[1], #ARGV[2])
while redis.call('XLEN', KEYS[2]) > tonumber(ARGV[4]) or bytes > tonumber(ARGV[6]) do
  local oldest = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
  if oldest[1] == id then break end
  redis.call('XDEL', KEYS[2], oldest[1])
  bytes = redis.call('HINCRBY', KEYS[3], ARGV[1], -#oldest[2][2])
end
redis.call('PUBLISH', ARGV[3], id .. '\\n' .. ARGV[2])
return id
"""
"""KEYS set of streams, the stream, bytes of streams; ARGV topic, frame, channel, maximum entries, maximum streams,
maximum bytes of the stream.

Returns the entry's id, or -1 if there are too many streams.
"""


CLAIM = """
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[2] then return held end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return ARGV[1]
"""
"""KEYS the claimed name; ARGV the claimer, the holder to replace, milliseconds. Returns the holder."""


class BusNames:
    """Keys and channels of one installation's bus. Several installations can share a server."""

    def __init__(self, prefix: str) -> None:
        # The braces keep all keys in one slot of a Redis cluster, where scripts want them.
        self.versions = f"{{{prefix}}}:bus:versions"
        self.values = f"{{{prefix}}}:bus:values"
        self.streams = f"{{{prefix}}}:bus:streams"
        self.stream_bytes = f"{{{prefix}}}:bus:stream-bytes"
        self._stream = f"{{{prefix}}}:bus:stream:"
        self._claim = f"{{{prefix}}}:bus:claim:"
        self._channel = f"{prefix}:bus:"

    def stream(self, topic: str) -> str:
        """Return the key of a stream's entries."""
        return self._stream + topic

    def claim(self, name: str) -> str:
        """Return the key of a claimed name."""
        return self._claim + name

    def channel(self, kind: str, topic: str) -> str:
        """Return the channel of a topic; `kind` is v (values) or s (stream entries)."""
        return f"{self._channel}{kind}:{topic}"

    def pattern(self, kind: str, prefix: str) -> str:
        """Return the pattern of all channels below a prefix."""
        plain = self.channel(kind, prefix)
        return "".join(f"\\{character}" if character in "*?[]\\" else character for character in plain) + "*"

    def topic(self, channel: str) -> tuple[str, str]:
        """Return kind and topic of a channel."""
        kind, _, topic = channel.removeprefix(self._channel).partition(":")
        return kind, topic


def installation_prefix(secret: SecretKey) -> str:
    """Return the key prefix of an installation that began with this secret. It reveals nothing about the secret."""
    return "headway:" + secret.derive("bus prefix", _PREFIX_BYTES).hex()


def is_prefix(text: str) -> bool:
    """Return whether a text has the form of a key prefix."""
    return _PREFIX.fullmatch(text) is not None


def meeting_point(secret: SecretKey) -> str:
    """Return the key under which processes with this secret find their installation's key prefix.

    The prefix survives a rotation of the secret: a process that holds two secrets stores it under both keys.
    """
    return BusNames(installation_prefix(secret)).claim("installation")
