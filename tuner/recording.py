"""Record cases: measure a list of configs each for its own sake, in an ordinary study of their own."""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from tuner.devices.base import describe_machine
from tuner.errors import StudyError
from tuner.export.header import Circumstances
from tuner.export.table import columns
from tuner.job import CaseOutcome, Job
from tuner.loop import calibrated, optimise
from tuner.purpose import record
from tuner.search.design import in_sessions, spread
from tuner.store.opening import check_study
from tuner.study.cases import Case
from tuner.study.space import LADDER, Config
from tuner.study.spec import PrunerSpec
from tuner.workbench import Workbench

DATABASE = "record.db"
"""Beside the study's own database, so that a search and a recording never mix."""
TABLES = "tables"
"""Folder of a study's tables, in its own."""
MOST_CONFIGS = 100_000
"""That a space to record may hold: all are looked at to choose a sample, and more than that no grid comes to an end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """What is to be recorded of one case."""

    case: Case
    count: int | None
    """So many configs that fill the space; None: all of it."""
    configs: Sequence[Config]
    """In the order in which they are measured."""
    circumstances: Circumstances


def recording_bench(bench: Workbench) -> Workbench:
    """Give the bench for recording: without pruner and constraints, and with a folder of its own for the probes.

    A table has the series of one objective, the first that the study names; it holds every metric in any case.
    """
    spec = bench.spec.model_copy(
        update={"pruner": PrunerSpec(name="none"), "constraints": {}, "objective": bench.spec.objectives[0]}
    )
    return replace(bench, spec=spec, folder=bench.folder / "record")


def plan_recording(bench: Workbench, case: Case, count: int | None) -> Recording:
    """Choose what to record of a case: its whole space or, where given, `count` configs that fill it.

    Raises StudyError where its parameters cannot be columns of a table, or it holds too many configs.
    """
    spec, space = bench.spec_for(case), bench.space_for(case)
    if any(islice(space.configs(), MOST_CONFIGS, None)):
        raise StudyError(
            f"the space of {case.name} holds more than {MOST_CONFIGS:,} configs, too many to record; leave values out"
        )
    chosen = list(space.configs()) if count is None else spread(space, count, spec.search.seed)
    known = {name: spec.space[name] for name in space.names}
    if LADDER in known:
        known[LADDER] = known[LADDER].with_values(space.values(LADDER))
    columns(known)
    return Recording(
        case=case,
        count=count,
        configs=in_sessions(
            chosen, lambda config: bench.trainer.session_key(case, config) if spec.probe.warm else None
        ),
        circumstances=Circumstances(
            space=known,
            limits=spec.probe,
            machine=describe_machine(bench.source),
            devices=tuple(replace(device, uuid=None) for device in bench.devices),
            commit=_commit(bench.spec.trainer.root),
        ),
    )


def record_cases(job: Job, recordings: Sequence[Recording]) -> tuple[list[Recording], list[CaseOutcome]]:
    """Measure the configs of each case in their order; what is recorded already is not measured again.

    Gives the recordings, planned anew where an `auto` ladder has been made first, and how the cases that began ended.
    Raises StoreError, before any probe, where a case has been recorded otherwise.
    """
    for case in (recording.case for recording in recordings):
        check_study(job.database, job.bench.study_name(case), job.bench.identity_for(case))
    planned: list[Recording] = []
    outcomes: list[CaseOutcome] = []
    for recording in recordings:
        made, outcome = _record(job, recording)
        planned.append(made)
        outcomes += outcome
    return planned, outcomes


def _record(job: Job, recording: Recording) -> tuple[Recording, list[CaseOutcome]]:
    if job.interrupted():
        return recording, []
    case = recording.case
    noting = _noting(job, recording)
    ready, calibration = calibrated(noting, case)
    if calibration and calibration.stopped:
        job.watcher.case_ended(calibration)
        return recording, [calibration]
    if ready is not noting:
        recording = plan_recording(ready.bench, case, recording.count)
    return recording, optimise(_job(_noting(ready, recording), recording), [case])


def _noting(job: Job, recording: Recording) -> Job:
    """Give the job with the circumstances of the recording for its study to keep."""
    return replace(job, recording=recording.circumstances.model_dump(mode="json"))


def _job(job: Job, recording: Recording) -> Job:
    """Give the job of measuring the list; what an `auto` ladder was calibrated with comes on top of it."""
    calibrated_too = job.bench.space_for(recording.case).auto_bounds is not None
    return replace(
        job,
        purpose=record(recording.configs, limited=not calibrated_too),
        trials=len(recording.configs),
    )


def _commit(root: str) -> str | None:
    """Give the commit of a checkout, `-dirty` where files differ from it; None where it is none."""
    git = shutil.which("git")
    if not root or git is None:
        return None
    command = [git, "-C", str(Path(root).expanduser()), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None
