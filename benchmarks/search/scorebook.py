"""Scores kept in a file as they come, so that a benchmark of hours may be interrupted and continued."""

import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, TypeVar

from benchmarks.search.searching import Score

S = TypeVar("S", bound=Any)
"""The class of the scores, a dataclass."""
Key = tuple[str, str, int, int]
"""Table, method, seed, and the most probes."""


class Scorebook(Generic[S]):
    """Scores by key, written to `path` as JSON lines if there is a path. It does not notice changes to the code."""

    def __init__(self, path: Path | None, kind: Callable[..., S] = Score) -> None:
        """`kind` makes a score from its fields."""
        self._path = path
        self._scores: dict[Key, S] = {}
        for line in path.read_text().splitlines() if path and path.exists() else ():
            *key, score = json.loads(line)
            self._scores[tuple(key)] = kind(**score)

    def missing(self, keys: Iterable[Key]) -> list[Key]:
        """Return the keys without a score."""
        return [key for key in keys if key not in self._scores]

    def fill(self, runs: Mapping[Future[S], Key]) -> None:
        """Wait for scores and write down each score when it comes."""
        for run in as_completed(runs):
            self._scores[runs[run]] = run.result()
            if self._path:
                with self._path.open("a") as book:
                    book.write(json.dumps([*runs[run], asdict(run.result())]) + "\n")

    def known(self, keys: Iterable[Key]) -> list[S]:
        """Return the scores of those keys that have one."""
        return [self._scores[key] for key in keys if key in self._scores]
