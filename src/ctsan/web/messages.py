"""What the server and a worker say to each other: a JSON object, then as many bytes as it announces.

Nothing is unpickled: a worker that a hostile file has taken over can only send numbers and text.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO, NamedTuple

_LENGTHS = struct.Struct(">II")  # of the object and of the bytes
_LONGEST = 64 * 2**20


class Message(NamedTuple):
    head: Mapping[str, Any]
    body: bytes = b""


def pack(message: Message) -> bytes:
    head = json.dumps(message.head).encode()
    return _LENGTHS.pack(len(head), len(message.body)) + head + message.body


def receive_from(stream: BinaryIO) -> Message | None:
    """The next message; None at the end of the stream."""
    lengths = stream.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    head, body = _LENGTHS.unpack(lengths)
    return Message(json.loads(stream.read(head)), stream.read(body))


async def receive(stream: asyncio.StreamReader) -> Message:
    """The next message.

    Raises:
        EOFError: the other side is gone.
        ValueError: what it sent is no message.
    """
    head, body = _LENGTHS.unpack(await stream.readexactly(_LENGTHS.size))
    if head + body > _LONGEST:
        raise ValueError(f"a message of {head + body:,} bytes")
    value = json.loads(await stream.readexactly(head))
    if not isinstance(value, dict):
        raise ValueError("a message that is no object")
    return Message(value, await stream.readexactly(body))
