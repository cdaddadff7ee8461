"""Lines of text, one at a time, for input of any length."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from typing import BinaryIO

GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def stream_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """Reads the lines of UTF-8 text, plain or gzip, as they are asked for.

    Only a newline ends a line, as for the tools that made the text: U+2028, form feeds and the like are part of it. A
    carriage return before the newline and a byte order mark are left out, and the last line needs no newline.

    Args:
        stream: UTF-8 text, plain or gzip.
        name: of the input, for messages.

    Yields:
        each line without its newline.

    Raises:
        ValueError: damaged gzip, or a line that is not UTF-8.
    """
    buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)  # type: ignore[type-var]
    text = gzip.GzipFile(fileobj=buffered) if buffered.peek(2)[:2] == GZIP_MAGIC else buffered
    number = 0
    try:
        for raw in text:
            number += 1
            raw = raw.removesuffix(b"\n").removesuffix(b"\r")
            yield (raw.removeprefix(BYTE_ORDER_MARK) if number == 1 else raw).decode("utf-8")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ValueError(f"{name} is not UTF-8: line {number} holds the byte 0x{byte:02x} ({error.reason})") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{name} is damaged gzip ({error})") from None
