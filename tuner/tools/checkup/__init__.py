"""`tuner doctor`: checks whether this machine is ready for a study or a command; each check yields findings."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from tuner.errors import TunerError


class Severity(StrEnum):
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
    level: Severity
    text: str


def fine(subject: str, text: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(subject=subject, level=Severity.OK, text=text)


def warning(subject: str, text: str) -> Finding:
    """Return a finding that the user should look at."""
    return Finding(subject=subject, level=Severity.WARNING, text=text)


def problem(subject: str, text: str) -> Finding:
    """Return a finding that the user must fix before a study runs."""
    return Finding(subject=subject, level=Severity.PROBLEM, text=text)


def findings_of(subject: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield what a check finds; an error that it raises becomes a problem."""
    try:
        yield from check()
    except (TunerError, OSError) as error:
        yield failure(subject, error)


def failure(subject: str, error: TunerError | OSError) -> Finding:
    """Return the problem that an error is."""
    return problem(subject, f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error))
