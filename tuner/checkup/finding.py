"""The result of one check."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    WARNING = "warning"
    """Probes run, but their values may suffer."""
    PROBLEM = "problem"
    """Probes do not run, or they would share the cards with others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What one check found."""

    subject: str
    level: Level
    text: str


def fine(subject: str, text: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(subject=subject, level=Level.OK, text=text)


def warning(subject: str, text: str) -> Finding:
    """Return a finding that the user should look at."""
    return Finding(subject=subject, level=Level.WARNING, text=text)


def problem(subject: str, text: str) -> Finding:
    """Return a finding that the user must fix before a study runs."""
    return Finding(subject=subject, level=Level.PROBLEM, text=text)
