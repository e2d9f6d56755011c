"""The loop if a search measures close rivals several times: the tables show the mean of the best."""

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from tests_loop import CASE, Quiet, bench, measured, opened, reader, spec

from tuner.export.tables import best_by_case
from tuner.probe.probe_plan import ProbePlan, Stop
from tuner.probe.result import ProbeResult
from tuner.running.job import Job
from tuner.running.loop import optimize

READ = {32: (62.0, 58.0, 57.5, 58.0, 58.5, 58.0), 64: (61.0, 60.5, 59.5, 60.0, 60.5, 60.0)}
"""`num_envs` → the values of its probes. The highest single value belongs to the worse config."""
ERROR = 1.5


def test_the_best_has_the_highest_mean_whatever_the_pruner_s_patience(tmp_path: Path) -> None:
    probed: Counter[int] = Counter()

    def close(plan: ProbePlan, stop: Stop) -> ProbeResult:
        rung = int(plan.config["num_envs"])
        result = measured(plan, READ[rung][probed[rung]])
        probed[rung] += 1
        return replace(result, devices=tuple(replace(device, util_se_pct=ERROR) for device in result.devices))

    space = {"num_envs": {"ladder": [64, 32]}, "pruner_patience": {"choices": [1, 2, 3]}}
    study = spec(space=space, search={"trials": 8, "sampler": "gain"})
    with opened(tmp_path) as database:
        job = Job(
            bench=bench(tmp_path, study), database=database, probe=close, listener=Quiet(), interrupted=lambda: False
        )
        optimize(job, [CASE])

    known = reader(tmp_path)
    patiences = defaultdict(set)
    for trial in known.trials():
        patiences[trial.config["num_envs"]].add(trial.config["pruner_patience"])
    assert len(set().union(*patiences.values())) > 1
    (row,) = best_by_case(known).rows
    assert (row["num_envs"], row["readings"], row["measured"]) == (64, probed[64], "cold")
    assert row["value"] == row["min_avg_util"] == round(fmean(READ[64][: probed[64]]), 2)
    assert row["min_avg_util_se"] == round(ERROR / probed[64] ** 0.5, 2)
