"""What a real training has shown: a study learns that a config ran out of memory."""

from collections.abc import Sequence
from dataclasses import replace

from tuner.errors import StudyError
from tuner.probe.evidence import OUT_OF_MEMORY, TOLD, Evidence
from tuner.probe.kinds import FailureKind
from tuner.probe.probe_plan import ProbePlan
from tuner.probe.protocols import Stop
from tuner.probe.result import Failure, ProbeResult, unlaunched
from tuner.running.job import Job, Purpose
from tuner.search.choosing import Choice, Done, History, Price, Strategy
from tuner.study import Config


def reported(lines: Sequence[str], *, oom: bool, gpu: bool) -> Failure:
    """Return the failure that the output of a training shows, or that its user tells.

    Raises StudyError where neither says that memory ran out: the study would learn nothing from it.
    """
    evidence = Evidence()
    for line in lines:
        evidence.feed(line, 0.0)
    found = evidence.failure()
    if found and found.kind in OUT_OF_MEMORY:
        return found
    if not oom:
        said = f"it shows {found.kind}: {found.detail}" if found else "no line of it shows why the training failed"
        raise StudyError(f"{said if lines else 'nothing is told'}; give --oom where the training ran out of memory")
    kind = FailureKind.GPU_OOM if gpu else FailureKind.HOST_OOM
    return Failure(kind=kind, rule=TOLD, detail="a training with this config ran out of memory, as its user told")


def telling(job: Job, config: Config, failure: Failure) -> Job:
    """Return the job that stores one trial of a config with this failure, and starts nothing."""
    left = [config]

    def choose(history: History, price: Price) -> Choice | Done:
        return Choice(config=left.pop(), cold=True) if left else Done(reason="the study knows it now")

    def probe(plan: ProbePlan, stop: Stop) -> ProbeResult:
        return unlaunched(plan.config, failure, plan.digest)

    purpose = Purpose(strategy=lambda *_: Strategy(choosers=(choose,)), limited=False, competing=False, keeps_end=False)
    return replace(job, probe=probe, purpose=purpose)
