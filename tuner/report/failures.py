"""The failures of a case, each kind with an excerpt of one real console log."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.kept.probe import INTERRUPTED
from tuner.kept.trial import KeptTrial
from tuner.probe.kinds import FailureKind
from tuner.probe.out_dir import folder_of

BEFORE, AFTER = 4, 7
"""The lines of an excerpt before and after the line that shows the failure."""
MOST_BYTES = 2_000_000
"""The end of a console log that is searched for that line."""
MOST_CHARACTERS = 300
"""A longer line of an excerpt is cut off."""
LEAST_WORDS = 12
"""The first characters of a failure's detail by which its line is found in the log."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed:
    """The failures of one kind in a case."""

    kind: str
    trials: int
    example: int
    """The trial of the excerpt."""
    detail: str
    excerpt: str | None
    """Some lines of one console log; None where no log can be read."""


def failures(trials: Sequence[KeptTrial], folder: Path) -> Iterator[Failed]:
    """Yield the failures by kind, the commonest first. `folder` is the study's folder, with the probes' folders."""
    kinds = {kind.value for kind in FailureKind} - {INTERRUPTED}
    failed = [trial for trial in trials if trial.status in kinds and trial.probe.failure]
    for kind, count in Counter(trial.status for trial in failed).most_common():
        same = [trial for trial in reversed(failed) if trial.status == kind]
        known = ((trial, _excerpt(folder, trial)) for trial in same)
        example, excerpt = next((one for one in known if one[1]), (same[0], None))
        yield Failed(kind=str(kind), trials=count, example=example.number, detail=_detail(example), excerpt=excerpt)


def _detail(trial: KeptTrial) -> str:
    return trial.probe.failure.detail if trial.probe.failure else ""


def _excerpt(folder: Path, trial: KeptTrial) -> str | None:
    """Return the lines around the one that shows the failure, or the last lines; None where nothing can be read."""
    probe = folder_of(folder, trial.probe.out_dir)
    if probe is None:
        return None
    try:
        with (probe / "console.log").open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - MOST_BYTES))
            lines = file.read(MOST_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return None
    sought = _detail(trial).strip()
    place = next((at for at, line in enumerate(lines) if len(sought) >= LEAST_WORDS and sought in line), len(lines))
    shown = lines[max(0, place - BEFORE) : place + AFTER + 1] if place < len(lines) else lines[-BEFORE - AFTER - 1 :]
    return "\n".join(line[:MOST_CHARACTERS] for line in shown).strip("\n") or None
