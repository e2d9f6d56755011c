"""The predecessor's procedure: the configs that it tries, its cost, its measurements and its result."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from tests_cli import study_file

from benchmarks.probes.old_rule import LIMIT_S, Attempt, limited, procedure, reading, winner
from benchmarks.probes.predecessor import main, rungs_from
from tuner.probe.result import DeviceSample, ProbeResult
from tuner.study.space import DEFAULT, LADDER, VARIANT, Config, Parameter, Space
from tuner.study.spec import ProbeSpec
from tuner.testing.fake_devices import load_recording
from tuner.testing.replays import replay
from tuner.trainers.mimickit.mimickit_trainer import PROGRESS

DATA = Path(__file__).parents[1] / "data"
LIMITS = limited(ProbeSpec(warmup_iterations=2))
RUNGS = (8, 16, 32, 64)
SPACE = Space(
    (
        Parameter(name=LADDER, values=RUNGS),
        Parameter(name=VARIANT, values=("hiutil", DEFAULT)),
        Parameter(name="batch_size", values=(2, 1)),
    )
)
TRAINER = """
import sys, time
if int(sys.argv[1]) > 16:
    raise MemoryError
for iteration in range(100):
    busy_until_s = time.process_time() + 0.02  # a device that does nothing would be a failure
    while time.process_time() < busy_until_s:
        pass
    print("iteration", iteration, flush=True)
"""


def replayed(recording: str, log: str) -> Attempt:
    """Probe a recorded trainer again by the old rule."""
    recorded = load_recording(DATA / f"recordings/{recording}.json")
    result = replay(DATA / f"{log}.log", PROGRESS, recording=recorded, limits=LIMITS)
    return Attempt(result=result, samples=recorded.samples, devices=2)


def attempt(config: Config, *, iterations: int = 8, util_pct: float = 50.0) -> Attempt:
    """Return an attempt whose window has the last three of its iterations."""
    samples = [DeviceSample(t_s=second, device=0, util_pct=util_pct) for second in range(30)]
    blank = ProbeResult(config=config, plan_digest="", started_at="", total_s=30.0)
    result = replace(blank, began=1, iteration=iterations, iterations=min(iterations, 3))
    return Attempt(result=result, samples=samples, devices=1)


def tried(most: dict[object, int], rungs: Sequence[int] = RUNGS) -> list[Config]:
    """Return the configs that are tried if each variant runs up to `most` of its environments."""
    return [
        one.result.config
        for one in procedure(
            SPACE,
            ("hiutil", DEFAULT),
            rungs,
            lambda config: attempt(config, iterations=8 if int(config[LADDER]) <= most[config[VARIANT]] else 0),
        )
    ]


def test_each_variant_goes_down_to_its_first_success() -> None:
    assert [(config[VARIANT], config[LADDER]) for config in tried({"hiutil": 20, DEFAULT: 64})] == [
        *(("hiutil", rung) for rung in (64, 32, 16)),
        (DEFAULT, 64),
    ]


@given(st.sets(st.integers(1, 100), min_size=1), st.integers(0, 100))
def test_it_pays_for_every_rung_above_its_success_and_for_none_below(rungs: set[int], most: int) -> None:
    fitting = [rung for rung in rungs if rung <= most]
    paid = [config[LADDER] for config in tried({"hiutil": most, DEFAULT: most}, sorted(rungs))]
    above = sorted((rung for rung in rungs if rung > most), reverse=True)
    assert paid == 2 * [*above, *([max(fitting)] if fitting else [])]


def test_other_parameters_take_their_first_value() -> None:
    assert {config["batch_size"] for config in tried({"hiutil": 8, DEFAULT: 8})} == {2}


def test_a_recorded_run_is_over_with_its_eighth_iteration() -> None:
    found = replayed("ok_hiutil_e1024", "healthy/ok_hiutil_e1024")
    assert (found.outcome, found.result.iterations, found.peak_mib) == ("ok", 6, 6097)
    assert found.device_s == 2 * found.result.total_s == pytest.approx(2 * 72.44)


@pytest.mark.parametrize("recording", ["oom_rank1_e1024", "oom_late_rank0_e1024"])
def test_ranks_that_wait_for_a_dead_one_cost_the_whole_limit(recording: str) -> None:
    found = replayed(recording, f"failures/gpu_oom/{recording}")
    assert (found.outcome, found.succeeded) == ("gpu_oom", False)
    assert found.result.total_s == pytest.approx(LIMIT_S, abs=0.1)


def test_the_old_reading_counts_start_up_beyond_its_first_20_seconds() -> None:
    recorded = load_recording(DATA / "recordings/ok_hiutil_e1024.json")
    assert reading(recorded.samples, 2) == pytest.approx(32.8, abs=0.1)  # the window's own mean is 62.8


def test_the_old_reading_of_a_shorter_run_is_unknown() -> None:
    assert reading([DeviceSample(t_s=19.9, device=0, util_pct=90.0)], 1) is None


def test_a_run_that_the_time_limit_ended_is_no_success() -> None:
    found = attempt({LADDER: 8}, iterations=7)
    assert (found.result.ok, found.succeeded, found.outcome) == (True, False, "fewer than 8 iterations")


def test_the_variant_with_the_highest_value_wins() -> None:
    low, high = attempt({VARIANT: "hiutil"}, util_pct=40.0), attempt({VARIANT: DEFAULT}, util_pct=60.0)
    failed = attempt({VARIANT: DEFAULT}, util_pct=99.0, iterations=0)
    unread = replace(low, samples=())
    assert winner([low, failed, high, unread]) is high
    assert winner([unread]) is unread
    assert winner([failed]) is None


def test_the_option_s_rungs_count_before_the_study_s() -> None:
    assert rungs_from("65536,1024", SPACE) == [65536, 1024]
    assert rungs_from(None, SPACE) == [*RUNGS]


@pytest.mark.parametrize(("ladder", "values"), [(None, ()), ("many", RUNGS), ("8,0", RUNGS), ("", RUNGS)])
def test_what_is_no_ladder_is_refused(ladder: str | None, values: tuple[int, ...]) -> None:
    with pytest.raises(typer.BadParameter, match="--ladder"):
        rungs_from(ladder, Space((Parameter(name=LADDER, values=values),)))


def test_rungs_that_are_made_from_probes_must_be_given() -> None:
    auto = Space((Parameter(name=LADDER, values=RUNGS, bounds=(8, 64)),))
    with pytest.raises(typer.BadParameter, match="--ladder"):
        rungs_from(None, auto)
    assert rungs_from("64", auto) == [64]


def test_a_real_command_is_probed_from_the_top(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "program.py"
    program.write_text(TRAINER)
    options = {
        "command": [sys.executable, str(program), "{num_envs}", "{agent_variant}"],
        "cases": ["walk"],
        "progress": [r"iteration (?P<iteration>\d+)"],
    }
    space = {LADDER: {"ladder": [8, 16]}, VARIANT: {"choices": [DEFAULT, "hiutil"]}}
    study = study_file(tmp_path, trainer={"name": "command", "options": options}, space=space)
    main(study=str(study), case="walk", ladder="32,16,8")
    shown = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert [cells[:3] for cells in shown if cells[0] in {"hiutil", DEFAULT}] == [
        [variant, rung, outcome]
        for variant in ("hiutil", DEFAULT)
        for rung, outcome in (("32", "host_oom"), ("16", "ok"))
    ]
    assert "winner: hiutil 16" in shown[-1][0]
    assert "; probes: 4, " in shown[-1][0]
    assert psutil.Process().children(recursive=True) == []
