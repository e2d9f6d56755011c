"""Records cases: measures a list of configs, each fully, in an ordinary study with a database of its own.

A case is one training of the study. The recorded results become a table, which a later search can replay. A ladder is
the parameter that decides memory. In a session, one started trainer measures several configs.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import NamedTuple

from tuner.devices.found import describe_machine
from tuner.errors import StudyError
from tuner.export.recorded_table import Circumstances, columns
from tuner.running.events import CaseOutcome
from tuner.running.job import Job, Workbench, purpose_of_recording
from tuner.running.loop import optimize, prepare
from tuner.search.samplers import ordered_by_session, space_filling
from tuner.store.opening import check_study
from tuner.study import Case, Config, PrunerSpec

MOST_CONFIGS = 100_000
"""The most configs of a space to record.

The choice of a sample looks at every config, and the recording of a larger grid would hardly end.
"""


class PlannedRecording(NamedTuple):
    """What a recording of one case measures."""

    case: Case
    sample_size: int | None
    """The number of configs in a sample that fills the space; None for the whole space."""
    configs: Sequence[Config]
    """The configs, in the order in which they are measured."""
    circumstances: Circumstances


def recording_bench(bench: Workbench, *, shares_database: bool = False) -> Workbench:
    """Return the bench for recording: without a pruner and constraints, so that every config is measured fully.

    The probes have a folder of their own, and in a database that others share another study. A table holds every
    metric, and the series of one objective: the first objective of the study.
    """
    spec = bench.spec.model_copy(
        update={"pruner": PrunerSpec(name="none"), "constraints": {}, "objective": bench.spec.objectives[0]}
    )
    return replace(bench, spec=spec, folder=bench.folder / "record", stored_as="-record" if shares_database else "")


def plan_recording(bench: Workbench, case: Case, count: int | None) -> PlannedRecording:
    """Return what to record of a case: its whole space or, if `count` is given, so many configs that fill the space.

    Raises StudyError if a parameter cannot be a column of a table, or the space has too many configs.
    """
    spec, space = bench.spec_for(case), bench.space_for(case)
    if any(islice(space.configs(), MOST_CONFIGS, None)):
        raise StudyError(
            f"the space of {case.name} holds more than {MOST_CONFIGS:,} configs, too many to record; leave values out"
        )
    configs = list(space.configs()) if count is None else space_filling(space, count, spec.search.seed)
    parameters = {name: spec.space[name] for name in space.names}
    if space.ladder is not None:
        parameters[space.ladder] = parameters[space.ladder].with_values(space.rungs)
    columns(parameters)  # called for its StudyError alone

    session_key = partial(bench.trainer.session_key, case) if spec.probe.warm else lambda _: None
    return PlannedRecording(
        case=case,
        sample_size=count,
        # configs of one session follow each other, so that few trainers are started
        configs=ordered_by_session(configs, session_key, space.ladder),
        circumstances=Circumstances(
            space=parameters,
            limits=spec.probe,
            machine=describe_machine(bench.source),
            devices=tuple(replace(device, uuid=None) for device in bench.devices),
            commit=bench.commit,
        ),
    )


class CaseRecording(NamedTuple):
    """The recording of a case."""

    planned: PlannedRecording
    """The plan; a new one if small probes gave the rungs of an `auto` ladder."""
    outcome: CaseOutcome | None = None
    """How it ended; None if it never began."""


def record_cases(job: Job, recordings: Sequence[PlannedRecording]) -> list[CaseRecording]:
    """Record one case after another, and return how each recording ended.

    All configs of a plan are measured in their order, except the configs that were recorded before.
    Raises StoreError, before any probe, if a case was recorded with other settings.
    """
    for case in (recording.case for recording in recordings):
        check_study(job.database, job.bench.study_name(case), job.bench.identity_for(case))
    return [CaseRecording(recording) if job.interrupted() else _record(job, recording) for recording in recordings]


def _record(job: Job, recording: PlannedRecording) -> CaseRecording:
    """Record a case, and return how that ended. Small probes come first for an `auto` ladder."""
    case, recording_job = recording.case, _with_circumstances(job, recording)
    prepared_job, small_probes = prepare(recording_job, case)
    if small_probes and small_probes.stopped:
        job.listener(small_probes.event)
        return CaseRecording(recording, small_probes)
    if prepared_job is not recording_job:  # small probes, now or earlier, gave the rungs
        recording = plan_recording(prepared_job.bench, case, recording.sample_size)
    space = prepared_job.bench.space_for(case)
    # A recording ends after as many trials as it has configs. Small probes are trials of the same study and would be
    # counted, so with them it ends when no config is left. That the ladder was `auto` shows in the space even now.
    purpose = purpose_of_recording(recording.configs, has_target=space.auto_bounds is None)
    job = replace(_with_circumstances(prepared_job, recording), purpose=purpose, trials=len(recording.configs))
    return CaseRecording(recording, next(iter(optimize(job, [case])), None))


def _with_circumstances(job: Job, recording: PlannedRecording) -> Job:
    """Return the job with the circumstances of the recording, which the case's study keeps."""
    return replace(job, recording=recording.circumstances.model_dump(mode="json"))
