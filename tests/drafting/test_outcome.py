"""What a search tells the person who has typed the command."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
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


def told_of(tmp_path: Path, own: Mapping[str, Any], best: Mapping[str, Any]) -> str:
    """Return what is told of a search in which a probe of the own command and one of the best had such numbers."""
    study = spec(
        trainer={"name": "command", "options": {"command": "train --workers {workers}", "cases": ["walk"]}},
        space={"workers": {"choices": [0, 2]}},
        search={"trials": 2, "sampler": "random", "seeds_per_variant": 1},
    )

    def probe(plan: ProbePlan, stop: Stop) -> ProbeResult:
        if plan.config["workers"]:
            return replace(measured(plan, 90.0), samples_per_s=3300.0, **best)
        return replace(measured(plan, 50.0), samples_per_s=1100.0, **own)

    desk = bench(tmp_path, study)
    with opened(tmp_path) as database:
        optimise(Job(bench=desk, database=database, probe=probe, watcher=Quiet(), interrupted=lambda: False), [CASE])
    return "\n".join(to_copy(desk, view(tmp_path), ["train", "--workers", "0"]))


PAUSE = "an epoch's end costs 1.3 s; the numbers are those without it"


@pytest.mark.parametrize(
    ("own", "best", "facts"),
    [
        ({}, {}, ["steps alone: no run saw a long pause"]),
        (
            {"trained_s": 10.0},
            {"trained_s": 3.0, "notes": (PAUSE,)},
            ["100 %", "30 %", "costs 1.3 s\n", "steps alone, and unknown"],
        ),
        (
            {"trained_s": 6.0, "step_share": 0.5, "notes": (PAUSE,)},
            {"trained_s": 3.0, "step_share": 0.25, "notes": (PAUSE,)},
            ["50 %", "25 %", "costs 1.3 s\n", "about 1.5 times"],
        ),
    ],
    ids=["none", "once", "often"],
)
def test_a_gain_says_what_pauses_between_steps_make_of_it(
    tmp_path: Path, own: Mapping[str, Any], best: Mapping[str, Any], facts: Sequence[str]
) -> None:
    told = told_of(tmp_path, own, best)
    assert "3.00 times as many, by 2 runs\n  " in told
    assert all(fact in told for fact in facts)


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
