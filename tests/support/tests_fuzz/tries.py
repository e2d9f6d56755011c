"""Tries what nobody should write: study files, URLs, database attributes, console lines. Counts tracebacks.

Hypothesis draws each try. A try may end with the tuner's own message (TunerError); any other exception counts as a
traceback.
"""

import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings

from tests.support.tests_fuzz.subjects import SUBJECTS
from tuner.errors import TunerError

ATTRIBUTES = "database attributes"
"""The subject whose tries take the longest: each of them opens, shows and exports a study."""


@dataclass(kw_only=True, slots=True)
class Outcome:
    """What became of the tries of one subject."""

    tries: int = 0
    tracebacks: list[str] = field(default_factory=list)


def fuzz(name: str, folder: Path, tries: int) -> Outcome:
    """Try so many drawn inputs of a subject."""
    outcome, (strategy, subject) = Outcome(), SUBJECTS[name]
    attempt = subject(folder)

    @settings(
        max_examples=tries,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(strategy)
    def draw(one: Any) -> None:
        try:
            attempt(one)
        except TunerError:
            pass
        except Exception:  # noqa: BLE001 - whatever else ends a try is what is counted
            outcome.tracebacks.append(f"{one!r}\n{traceback.format_exc()}")
        outcome.tries += 1

    draw()
    return outcome
