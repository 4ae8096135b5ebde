"""Framing of the messages between server and worker: a JSON object, followed by binary data.

Nothing is unpickled, so a worker compromised by a hostile file can only send numbers and text.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO, NamedTuple

_LENGTHS = struct.Struct(">II")  # bytes of the head and of the body
_MAX_BYTES = 64 * 2**20


class Message(NamedTuple):
    head: Mapping[str, Any]
    body: bytes = b""


def pack(message: Message) -> bytes:
    head = json.dumps(message.head).encode()
    return _LENGTHS.pack(len(head), len(message.body)) + head + message.body


def receive_from(stream: BinaryIO) -> Message | None:
    """Read the next message (blocking); None at the end of the stream."""
    lengths = stream.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    head_bytes, body_bytes = _LENGTHS.unpack(lengths)
    return Message(json.loads(stream.read(head_bytes)), stream.read(body_bytes))


async def receive(stream: asyncio.StreamReader) -> Message:
    """Read the next message (asyncio).

    Raises:
        EOFError: the sender has closed the stream.
        ValueError: the data is not a valid message.
    """
    head_bytes, body_bytes = _LENGTHS.unpack(await stream.readexactly(_LENGTHS.size))
    if head_bytes + body_bytes > _MAX_BYTES:
        raise ValueError(f"a message of {head_bytes + body_bytes:,} bytes")
    head = json.loads(await stream.readexactly(head_bytes))
    if not isinstance(head, dict):
        raise ValueError("a message that is not a JSON object")
    return Message(head, await stream.readexactly(body_bytes))
