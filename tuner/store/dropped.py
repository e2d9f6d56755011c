"""Trials whose process is gone: what one had measured but could not tell is told, the others are asked again."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState
from pydantic import TypeAdapter, ValidationError

from tuner.errors import StoreError
from tuner.kept.probe import INTERRUPTED, KeptProbe
from tuner.search.telling import tell
from tuner.search.trials import kept
from tuner.search.verdict import State, Verdict
from tuner.store.leases import Lease
from tuner.store.records import attributes, dropped_probe

UNTOLD = "result.json"
"""File in a probe's folder: what no database took of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Untold:
    """What came of a trial, and whose it was."""

    number: int
    lease: Lease
    verdict: Verdict
    record: KeptProbe

    def of(self, trial: FrozenTrial) -> bool:
        """Tell whether it is this trial's: one of another database may have its number."""
        lease = Lease.read(kept(trial).lease)
        return trial.number == self.number and lease is not None and lease.same(self.lease)


class Recovered(NamedTuple):
    """How many trials were no longer run by anybody."""

    told: int
    """Of these, what they had measured has now been told."""
    taken_back: int
    """These will be asked again."""


_FILE = TypeAdapter(Untold)
_DROPPED = Verdict(state=State.FAIL, status=INTERRUPTED, retry=True)
"""The verdict on a probe whose process is gone."""


def set_aside(error: StoreError, number: int, verdict: Verdict, record: KeptProbe, folder: Path) -> StoreError:
    """Write what came of this process's trial into its probe's folder, below the study's; give the error that names it.

    Where nothing was launched, or the file cannot be written, the error is given as it is.
    """
    if not record.out_dir:
        return error
    untold = Untold(number=number, lease=Lease.mine(), verdict=verdict, record=record)
    file = folder / record.out_dir / UNTOLD
    try:
        file.parent.mkdir(parents=True, exist_ok=True)  # a probe that leaves no file leaves no folder
        file.write_bytes(_FILE.dump_json(untold, indent=2))
    except OSError:
        return error
    return StoreError(
        f"{error}\nwhat the last probe measured is kept in {file}; the next run tells it, if its trial is still open"
    )


def recover(study: Study, probes: Path) -> Recovered:
    """End the trials whose process is gone; below `probes` lie their folders."""
    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    dropped = [trial for trial in running if not _is_held(trial)]
    untold = dict(_read(probes)) if dropped else {}
    told = 0
    for trial in dropped:
        open_trial = Trial(study, trial._trial_id)
        file = next((file for file, one in untold.items() if one.of(trial)), None)
        if file is None:
            tell_probe(study, open_trial, _DROPPED, dropped_probe(trial.params))
        else:
            tell_probe(study, open_trial, untold[file].verdict, untold[file].record)
            file.unlink(missing_ok=True)
            told += 1
    return Recovered(told=told, taken_back=len(dropped) - told)


def tell_probe(study: Study, trial: Trial, verdict: Verdict, probe: KeptProbe) -> None:
    """Keep what is known of the probe and report the verdict to Optuna."""
    for name, fact in attributes(verdict, probe).items():
        trial.set_user_attr(name, fact)
    tell(study, trial, verdict)


def _is_held(trial: FrozenTrial) -> bool:
    lease = Lease.read(kept(trial).lease)
    return lease is not None and lease.held()


def _read(probes: Path) -> Iterator[tuple[Path, Untold]]:
    for file in probes.glob(f"*/{UNTOLD}"):
        try:
            yield file, _FILE.validate_json(file.read_bytes())
        except (OSError, ValidationError):
            continue  # cut off, or another version's
