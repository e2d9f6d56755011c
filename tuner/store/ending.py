"""Makes what the database keeps of an ended trial, and ends trials whose process is gone."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import median
from typing import NamedTuple

from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState
from pydantic import TypeAdapter, ValidationError

from tuner.errors import StoreError
from tuner.kept.stored import storable
from tuner.kept.trial import INTERRUPTED, KeptProbe, attributes
from tuner.probe.metrics import measured
from tuner.probe.probe_plan import ProbePlan
from tuner.probe.result import ProbeResult
from tuner.search.trials import kept, tell
from tuner.search.verdict import State, Verdict
from tuner.store.leases import Lease, is_held
from tuner.store.storage import TrialStorage
from tuner.study import launch_digest

_NOT_KEPT = {"score"}
"""The fields of a result that its record leaves out: the score after so short a training means nothing."""


def kept_probe(
    result: ProbeResult, verdict: Verdict, plan: ProbePlan | None, *, launched: bool, folder: Path
) -> KeptProbe:
    """Return what is kept of a probe; a refused config has no plan.

    Paths below the study's `folder` are kept relative to the folder, so that the folder may move.
    """
    return KeptProbe(
        **{name: getattr(result, name) for name in {one.name for one in fields(result)} - _NOT_KEPT},
        digest=launch_digest(result.config),
        status=verdict.status,
        ineligible=verdict.ineligible,
        launched=launched,
        metrics=measured(result),
        agent_config=_within(folder, plan.agent_config) if plan else "",
        base_agent=plan.base_agent if plan else "",
        session_key=plan.session_key if plan and plan.request is not None else None,
        out_dir=_within(folder, str(plan.slot.out_dir)) if plan and launched else "",
    )


def usual_s(trials: Iterable[FrozenTrial]) -> float | None:
    """Return the median of the seconds that complete probes took; None where no probe's time is known."""
    complete = (kept(one).total_s for one in trials if one.state == TrialState.COMPLETE)
    known = [total_s for total_s in complete if total_s is not None]
    return median(known) if known else None


def _within(folder: Path, path: str) -> str:
    return str(Path(path).relative_to(folder)) if path and Path(path).is_relative_to(folder) else path


RESULT_FILE = "result.json"
"""The file in a probe's folder with a result that could not be stored in the database."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unstored:
    """The result of a trial that could not be stored, and the process that ran the trial."""

    number: int
    lease: Lease
    verdict: Verdict
    record: KeptProbe

    def of(self, trial: FrozenTrial) -> bool:
        """Check whether the result is of this trial. A trial in another database may have the same number."""
        lease = Lease.read(kept(trial).lease)
        return trial.number == self.number and lease is not None and lease.same(self.lease)


class TakenBack(NamedTuple):
    """How many trials had lost their process."""

    stored: int
    """The trials whose result was in a file and is now stored."""
    to_repeat: int
    """The trials whose configs will be probed again."""


_FILE = TypeAdapter(Unstored)
_DROPPED = Verdict(state=State.FAIL, status=INTERRUPTED, retry=True)
"""The verdict on a probe whose process is gone and left no result."""


def set_aside(error: StoreError, number: int, verdict: Verdict, record: KeptProbe, folder: Path) -> StoreError:
    """Write the result of a trial of this process to a file in the probe's folder; return an error that names the file.

    `folder` is the study's folder. The error is returned unchanged if nothing was launched or the file cannot be
    written.
    """
    if not record.out_dir:
        return error
    unstored = Unstored(number=number, lease=Lease.mine(), verdict=verdict, record=record)
    file = folder / record.out_dir / RESULT_FILE
    try:
        file.parent.mkdir(parents=True, exist_ok=True)  # a probe that leaves no file leaves no folder
        file.write_text(json.dumps(storable(asdict(unstored)), indent=2), encoding="utf-8")
    except OSError:
        return error
    return StoreError(
        f"{error}\nthe result of the last probe is kept in {file}; the next run stores it if the trial is still open"
    )


def take_back(storage: TrialStorage, study: Study, probes: Path) -> tuple[TakenBack, list[Path]]:
    """End the trials whose process is gone. `probes`: the folder that holds the probes' folders.

    Also returns the files whose results are stored now. They may be deleted once the database has committed.
    """
    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    dropped = [trial for trial in running if not is_held(kept(trial).lease)]
    unstored = dict(_read(probes)) if dropped else {}
    stored: list[Path] = []
    for trial in dropped:
        open_trial = Trial(study, storage.trial_id(study.study_name, trial.number))
        file = next((file for file, one in unstored.items() if one.of(trial)), None)
        if file is None:
            digest = launch_digest(trial.params)
            gone = KeptProbe(config=trial.params, digest=digest, status=INTERRUPTED, launched=True)
            tell_probe(study, open_trial, _DROPPED, gone)
        else:
            tell_probe(study, open_trial, unstored[file].verdict, unstored[file].record)
            stored.append(file)
    return TakenBack(stored=len(stored), to_repeat=len(dropped) - len(stored)), stored


def tell_probe(study: Study, trial: Trial, verdict: Verdict, probe: KeptProbe) -> None:
    """Store the record of the probe, and report the verdict to Optuna."""
    for name, fact in attributes(probe, retry=verdict.retry, error=verdict.error).items():
        trial.set_user_attr(name, fact)
    tell(study, trial, verdict)


def _read(probes: Path) -> Iterator[tuple[Path, Unstored]]:
    for file in probes.glob(f"*/{RESULT_FILE}"):
        try:
            yield file, _FILE.validate_json(file.read_bytes())
        except (OSError, ValidationError):
            continue  # the file is incomplete, or of another version
