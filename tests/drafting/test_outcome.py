"""What a search tells the person who has typed the command."""

from pathlib import Path

from tests_loop import CASE, Quiet, bench, measured, opened, spec, view

from tuner.drafting.outcome import to_copy
from tuner.probe.probe_plan import ProbePlan
from tuner.probe.protocols import Stop
from tuner.probe.result import ProbeResult
from tuner.running.loop import optimise
from tuner.running.workbench import Job


def test_a_value_that_had_no_effect_before_is_not_told_as_a_change(tmp_path: Path) -> None:
    study = spec(
        trainer={
            "name": "command",
            "options": {"command": "train --workers {workers} --ahead {ahead}", "cases": ["walk"]},
        },
        space={
            "workers": {"choices": [0, 2]},
            "ahead": {"choices": [4, 8], "when": {"workers": {"min": 1}}},
        },
        search={"trials": 3, "sampler": "random"},
    )

    def busier(plan: ProbePlan, stop: Stop) -> ProbeResult:
        return measured(plan, 90.0 if plan.config.get("ahead") == 4 else 50.0)

    desk = bench(tmp_path, study)
    with opened(tmp_path) as database:
        optimise(Job(bench=desk, database=database, probe=busier, watcher=Quiet(), interrupted=lambda: False), [CASE])
    told = list(to_copy(desk, view(tmp_path), ["train", "--workers", "0", "--ahead", "4"]))

    assert "  workers: 0 → 2" in told
    assert "  ahead: 4; it had no effect before" in told
    assert told[-1] == "train --workers 2 --ahead 4"


def test_a_command_alone_is_compared_with_nothing(tmp_path: Path) -> None:
    study = spec(
        trainer={"name": "command", "options": {"command": "train --workers {workers}", "cases": ["walk"]}},
        space={"workers": {"choices": [0, 2]}},
        search={"trials": 1, "sampler": "random", "seeds_per_variant": 1},
    )
    desk = bench(tmp_path, study)
    with opened(tmp_path) as database:
        job = Job(
            bench=desk,
            database=database,
            probe=lambda plan, stop: measured(plan, 50.0),
            watcher=Quiet(),
            interrupted=lambda: False,
        )
        optimise(job, [CASE])
    configs = view(tmp_path).configs
    own = str(configs[0].config["workers"])
    told = list(to_copy(desk, view(tmp_path), ["train", "--workers", own]))

    assert len(configs) == 1
    assert "no other config was measured" in " ".join(told)
