"""Hides the values of environment variables in a trainer's output: a reference `${NAME}` stands in their place."""

import json
import re
from collections.abc import Mapping

LEAST_CHARACTERS = 8
"""A shorter value is not hidden, because other texts contain it by chance (as GitLab CI's masked variables)."""
LEAST_OF_A_KIND = 16
"""A shorter value of letters alone, or that may be a number or a time, is not hidden: lines with progress hold such."""
_OF_A_KIND = re.compile(r"[^\W\d_]+|[-+.,:/\deE]+")


class Mask:
    """Replaces values by references, in a stream of bytes and in single texts."""

    def __init__(self, values: Mapping[str, str]) -> None:
        """`values` are variables: name → value."""
        spelt = {
            spelling.encode(errors="surrogateescape"): f"${{{name}}}".encode()
            for name, value in values.items()
            if _is_hidden(value)
            for spelling in (value, json.dumps(value)[1:-1])
        }
        self._spelt = dict(sorted(spelt.items(), key=lambda one: len(one[0]), reverse=True))
        self._pattern = re.compile(b"|".join(map(re.escape, self._spelt))) if spelt else None
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
        return self._pattern.sub(lambda found: self._spelt[found[0]], whole) if self._pattern else whole

    def _begun(self, rest: bytes) -> int:
        """Return how many bytes at the end are the beginning of a value."""
        return max(
            (
                length
                for value in self._spelt
                for length in range(min(len(value) - 1, len(rest)), 0, -1)
                if rest.endswith(value[:length])
            ),
            default=0,
        )


def _is_hidden(value: str) -> bool:
    return len(value) >= (LEAST_OF_A_KIND if _OF_A_KIND.fullmatch(value) else LEAST_CHARACTERS)


NO_MASK = Mask({})
