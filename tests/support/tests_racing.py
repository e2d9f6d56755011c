"""A searched study for the tests of races, made with a fake trainer."""

from dataclasses import replace
from pathlib import Path

from tests.support.tests_loop import Quiet, bench, measured, opened, reader, spec
from tuner.export import StudyReader
from tuner.probe import ProbePlan, ProbeResult, Stop
from tuner.running.job import Job
from tuner.running.loop import optimize
from tuner.study import Case

WALK = Case(name="walk")
MEASURED = {
    ("hiutil", 64): (95.0, 100.0),
    ("hiutil", 32): (90.0, 110.0),
    ("hiutil", 16): (60.0, 90.0),
    ("default", 64): (70.0, 300.0),
    ("default", 32): (50.0, 400.0),
    ("default", 16): (30.0, 350.0),
}
"""Variant and environments → utilisation and samples/s."""


def searched(folder: Path, *, rungs: list[int], variants: list[str]) -> StudyReader:
    space = {"num_envs": {"ladder": rungs}, "agent_variant": {"choices": variants}}
    study = spec(space=space, search={"trials": 6, "sampler": "random", "seeds_per_variant": 3})

    def probe(plan: ProbePlan, stop: Stop) -> ProbeResult:
        util, speed = MEASURED[str(plan.config["agent_variant"]), int(plan.config["num_envs"])]
        return replace(measured(plan, util), samples_per_s=speed)

    with opened(folder / "demo") as database:
        job = Job(
            bench=bench(folder, study), database=database, probe=probe, listener=Quiet(), interrupted=lambda: False
        )
        optimize(job, [WALK])
    return reader(folder / "demo")
