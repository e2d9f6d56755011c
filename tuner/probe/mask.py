"""Hides the values of environment variables in a trainer's output: a reference `${NAME}` stands in their place."""

import json
import re
from collections.abc import Mapping

LEAST_CHARACTERS = 8
"""A shorter value is not hidden, because other texts contain it by chance (as GitLab CI's masked variables)."""
LEAST_OF_A_KIND = 16
"""A shorter value of letters alone, or that may be a number or a time, is not hidden: lines with progress hold such."""
_OF_A_KIND = re.compile(r"[^\W\d_]+|[-+.,:/\deE]+")


_CODE = rb"\x1b\[[0-9;:]*[A-Za-z]"
_COLOURED = re.compile(_CODE)
_CODE_OR_BEGUN = re.compile(_CODE + rb"|\x1b(?:\[[0-9;:]*)?$")
MOST_WAITING = 4096
"""The most bytes at the end of a chunk that wait because they may begin a value."""


class Mask:
    """Replaces values by references, in a stream of bytes and in single texts.

    A value is found as it is, as a string of JSON, as Python's `repr`, and with colour codes between its characters.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        """`values` are variables: name → value."""
        spelt = {
            spelling.encode(errors="surrogateescape"): f"${{{name}}}".encode()
            for name, value in values.items()
            if _is_hidden(value)
            for spelling in (value, json.dumps(value)[1:-1], repr(value)[1:-1], ascii(value)[1:-1])
        }
        self._spelt = dict(sorted(spelt.items(), key=lambda one: len(one[0]), reverse=True))
        self._pattern = re.compile(b"|".join(map(_coloured, self._spelt))) if spelt else None
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return the next part of the stream. A possible beginning of a value waits for the next chunk."""
        if self._pattern is None:
            return chunk
        chunk = self._rest + chunk
        end = max((found.end() for found in self._pattern.finditer(chunk)), default=0)
        whole = len(chunk) - self._begun(chunk[end:])
        self._rest = chunk[whole:]
        return self._replaced(chunk[:whole])

    def close(self) -> bytes:
        """Return the last part of the stream."""
        rest, self._rest = self._rest, b""
        return rest

    def text(self, text: str) -> str:
        """Return a text with references in place of values; the stream stays as it is."""
        return self._replaced(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")

    def _replaced(self, whole: bytes) -> bytes:
        return self._pattern.sub(self._reference, whole) if self._pattern else whole

    def _reference(self, found: re.Match[bytes]) -> bytes:
        """Return the reference, and the colour codes that stood inside the value, so that no colour runs on."""
        codes = b"".join(_COLOURED.findall(found[0]))
        return self._spelt[_COLOURED.sub(b"", found[0])] + codes

    def _begun(self, rest: bytes) -> int:
        """Return how many bytes at the end are the beginning of a value, colour codes among them.

        What looks like a code may begin a value with one of its own letters.
        """
        rest = rest[-MOST_WAITING:]
        longest, at, begun = max(map(len, self._spelt)), len(rest), 0
        plain = b""
        for code in (*reversed(list(_CODE_OR_BEGUN.finditer(rest))), None):
            begin, end = code.span() if code else (0, 0)
            while at > end and len(plain) < longest:
                at -= 1
                plain = rest[at : at + 1] + plain
                begun = len(rest) - at if self._is_beginning(plain) else begun
            if len(plain) >= longest:
                break
            inside = (place for place in range(begin + 1, end) if self._is_beginning(rest[place:end] + plain))
            begun = max(begun, len(rest) - next(inside, len(rest)))
            at = begin
        return begun

    def _is_beginning(self, plain: bytes) -> bool:
        return any(value.startswith(plain) and value != plain for value in self._spelt)


def _coloured(value: bytes) -> bytes:
    """Return the pattern of a value that may have colour codes between its bytes."""
    return (rb"(?:" + _CODE + rb")*").join(re.escape(value[at : at + 1]) for at in range(len(value)))


def _is_hidden(value: str) -> bool:
    return len(value) >= (LEAST_OF_A_KIND if _OF_A_KIND.fullmatch(value) else LEAST_CHARACTERS)


NO_MASK = Mask({})
