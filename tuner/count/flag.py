"""A flag that a script has parsed, with the value in force."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Flag:
    """A flag that a script knows."""

    names: tuple[str, ...]
    """Its spellings without leading dashes, long ones first; `train.batch_size` where words are `name=value`."""
    choices: tuple[str, ...] = ()
    value: str | None = None
    """The value in force: the typed one, or else that of the script; None where nobody says it."""
    is_switch: bool = False
    """Whether the flag may stand without a value, and is off without it."""
    off: tuple[str, ...] = ()
    """The spellings that switch it off, such as `no-compile`."""
    typed: bool = False
    """Whether the command line names it."""

    @property
    def is_on(self) -> bool:
        """Whether it is true in the run."""
        return self.value == "True"

    @property
    def parameter(self) -> str:
        """Its name in a study."""
        return as_parameter(self.names[0])

    @property
    def number(self) -> int | None:
        """Its value as a whole number; None for any other value."""
        return int(self.value) if self.value and self.value.isdecimal() else None


def as_parameter(name: str) -> str:
    """Return the last part of a name, with underscores in place of hyphens."""
    return name.rpartition(".")[2].replace("-", "_")


def flags_of(options: Sequence[Mapping[str, Any]]) -> Iterator[Flag]:
    """Yield the flags of a parser's options. An option without a name is left out."""
    for option in options:
        value = option.get("value")
        if names := _bare(option.get("names")):
            yield Flag(
                names=tuple(sorted(names, key=len, reverse=True)),
                choices=tuple(map(str, option.get("choices") or ())),
                value=None if value is None else str(value),
                is_switch=bool(option.get("switch")),
                off=_bare(option.get("off")),
                typed=bool(option.get("typed")),
            )


def _bare(names: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(str(name).lstrip("-") for name in names or ())
