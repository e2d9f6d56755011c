"""Tries what nobody should write: study files, URLs, database attributes, console lines. Counts tracebacks.

    python -m benchmarks.fuzz.tries [--tries 2000] [--attribute-tries 500] [--only "console lines"]

Hypothesis draws each try. A try may end with the tuner's own message (TunerError); any other exception counts as a
traceback. The script prints the CPU seconds of the slowest try of each subject, and exits with 1 after a traceback.
"""

import argparse
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
from hypothesis import HealthCheck, Phase, given, settings
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.fuzz.subjects import SUBJECTS
from tuner.errors import TunerError

ATTRIBUTES = "database attributes"
"""The subject whose tries take the longest: each of them opens, shows and exports a study."""


@dataclass(kw_only=True, slots=True)
class Outcome:
    """What became of the tries of one subject."""

    tries: int = 0
    messages: int = 0
    """The tries that ended with the tuner's own message."""
    slowest_s: float = 0.0
    """CPU seconds, which depend less on other work than wall seconds."""
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
        begun_s = time.process_time()
        try:
            attempt(one)
        except TunerError:
            outcome.messages += 1
        except Exception:  # noqa: BLE001 - whatever else ends a try is what is counted
            outcome.tracebacks.append(f"{one!r}\n{traceback.format_exc()}")
        outcome.tries += 1
        outcome.slowest_s = max(outcome.slowest_s, time.process_time() - begun_s)

    draw()
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=2000, help="of each subject but the attributes")
    parser.add_argument("--attribute-tries", type=int, default=500)
    parser.add_argument("--only", choices=SUBJECTS, help="this subject alone")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    table = Table("subject", "tries", "refused with a message", "tracebacks", "slowest, CPU s", box=box.MARKDOWN)
    found: list[str] = []
    for name in [options.only] if options.only else SUBJECTS:
        with tempfile.TemporaryDirectory() as folder:
            outcome = fuzz(name, Path(folder), options.attribute_tries if name == ATTRIBUTES else options.tries)
        found += outcome.tracebacks
        counts = (outcome.tries, outcome.messages, len(outcome.tracebacks))
        table.add_row(name, *(f"{count:,}" for count in counts), f"{outcome.slowest_s:.2f}")
    Console(width=120).print(table)
    for text in found[:5]:
        print(text, file=sys.stderr)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
