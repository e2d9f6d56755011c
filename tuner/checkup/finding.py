"""What a check finds."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    WARNING = "warning"
    """Probes run; their numbers may suffer."""
    PROBLEM = "problem"
    """Probes do not run, or not for this study alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What one check has found."""

    subject: str
    level: Level
    text: str


def fine(subject: str, text: str) -> Finding:
    """Give a finding that asks for nothing."""
    return Finding(subject=subject, level=Level.OK, text=text)


def warning(subject: str, text: str) -> Finding:
    """Give a finding that is worth a look."""
    return Finding(subject=subject, level=Level.WARNING, text=text)


def problem(subject: str, text: str) -> Finding:
    """Give a finding that must be mended before a study runs."""
    return Finding(subject=subject, level=Level.PROBLEM, text=text)
