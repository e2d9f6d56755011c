"""Training cases: what a trainer knows, and which of them a study asks for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from tuner.errors import StudyError

FILES = ("agent_config", "env_config", "engine_config")
"""Options of a case that name the trainer's files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One training job; `options` holds what the trainer needs to launch it and what the manifest shows."""

    name: str
    mode: str = "train"
    trainable: bool = True
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def method(self) -> str:
        """The learning method: the first word of the name."""
        return self.name.split("_", 1)[0]


def select(cases: Sequence[Case], patterns: Iterable[str]) -> list[Case]:
    """Give the trainable cases that any of the `patterns` (globs, with or without `.txt`) matches, in case order.

    Raises StudyError naming every pattern that matches no trainable case.
    """
    trainable = {case.name: case for case in cases if case.trainable}
    chosen: set[str] = set()
    empty: list[str] = []
    for pattern in patterns:
        matched = {name for name in trainable if fnmatchcase(name, pattern.removesuffix(".txt"))}
        chosen |= matched
        if not matched:
            empty.append(pattern)
    if empty:
        raise StudyError(
            f"no trainable case matches {', '.join(map(repr, empty))}; "
            f"this trainer knows {', '.join(trainable) or 'none'} (`tuner cases` lists them)"
        )
    return [case for name, case in trainable.items() if name in chosen]
