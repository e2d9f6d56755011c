"""The live view, rendered to a console of a recorded size."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tuner.cli.screen import BARS, POINTS, Board, sparkline
from tuner.running.events import (
    BestSoFar,
    CaseEnded,
    CaseStarted,
    Event,
    Phase,
    ProbeEnded,
    ProbeRunning,
    ProbeStarted,
    StudyStarted,
)


def study(*cases: str, devices: tuple[str, ...] = ("cuda:0", "cuda:1")) -> StudyStarted:
    return StudyStarted(
        study="demo", trainer="command", cases=cases or ("walk",), devices=devices, objectives=("min_avg_util",)
    )


def begun(case: str = "walk", *, best: BestSoFar | None = None) -> CaseStarted:
    return CaseStarted(case=case, finished=2, target=24, best=best, saved=0, to_repeat=0)


def probe(trial: int = 7, case: str = "walk", *, left_s: float | None = None) -> ProbeStarted:
    return ProbeStarted(case=case, trial=trial, config={"num_envs": 4096}, left=None, left_s=left_s)


def running(
    phase: Phase = "measuring", iteration: int | None = 3, seconds: float = 64.0, utilisation: tuple[float, ...] = ()
) -> ProbeRunning:
    value, error, speed = (61.25, 0.8, 15000.4) if phase == "measuring" else (None, None, None)
    return ProbeRunning(
        case="walk",
        trial=7,
        phase=phase,
        seconds=seconds,
        iteration=iteration,
        usual_iterations=7,
        value=value,
        error=error,
        samples_per_s=speed,
        utilisation=utilisation,
    )


def ended(case: str = "walk", *, left_s: float | None = None) -> ProbeEnded:
    return ProbeEnded(
        case=case,
        trial=7,
        config={"num_envs": 4096},
        total_batch=None,
        status="ok",
        values=(61.25,),
        error=0.8,
        samples_per_s=15000.4,
        leads=True,
        notes=(),
        confirms=False,
        origin=None,
        seconds=64.0,
        best=BestSoFar(value=61.25, error=0.8, trial=7),
        finished=3,
        target=24,
        counts=True,
        left_s=left_s,
    )


def shown(*events: Event | tuple[Event, str], width: int = 100, height: int = 25, encoding: str = "utf-8") -> list[str]:
    """Return the lines of the view after these events; an event may come with its worker."""
    board = Board()
    for one in events:
        event, worker = one if isinstance(one, tuple) else (one, "")
        board.take(event, worker)
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace", write_through=True)
    Console(file=file, width=width, height=height, color_system=None).print(board)
    file.seek(0)
    return file.read().splitlines()


def test_a_case_shows_its_trials_and_its_best_with_the_error() -> None:
    best = BestSoFar(value=61.25, error=0.8, trial=1)
    assert shown(study(), begun(best=best)) == ["walk  2 of 24 trials, best min_avg_util 61.2 ± 0.8 (#1)"]
    assert shown(study(), begun()) == ["walk  2 of 24 trials, no best yet"]
    assert shown(study()) == ["walk  waiting"]


@pytest.mark.parametrize(
    ("event", "phase"),
    [
        (None, "starting"),
        (running("starting", None, 8.0), "starting, 8.0 s"),
        (running("warm-up", 1, 31.0), "warm-up, iteration 1, 31.0 s"),
        (running(), "iteration 3 of 7, 1 min 04 s, 61.2 ± 0.8, 15000 samples/s so far"),
        (running(iteration=912), "iteration 912, 1 min 04 s, 61.2 ± 0.8, 15000 samples/s so far"),
    ],
)
def test_a_probe_shows_its_phase(event: ProbeRunning | None, phase: str) -> None:
    events = [study(), begun(), probe(), *([event] if event else [])]
    assert shown(*events)[1:] == [f"  #7: {phase}", "    num_envs=4096"]


def test_each_device_shows_how_its_utilisation_went() -> None:
    moments = [running(utilisation=(float(share), 100.0)) for share in (0, 50, 100)]
    assert shown(study(), begun(), probe(), *moments)[-2:] == ["    cuda:0 ▁▅█ 100 %", "    cuda:1 ███ 100 %"]


def test_an_output_without_the_blocks_gets_other_characters() -> None:
    moments = [running(utilisation=(float(share),)) for share in (0, 50, 100)]
    assert shown(study(devices=("cuda:0",)), begun(), probe(), *moments, encoding="ascii")[-1] == "    cuda:0 _=# 100 %"


def test_the_time_left_is_told_as_far_as_it_is_known() -> None:
    assert "done in" not in shown(study(), begun(), probe())[0]
    assert shown(study(), begun(), probe(left_s=600.0))[0].endswith("done in about 10 min 00 s")
    assert shown(study(), begun(), probe(left_s=600.0), running())[0].endswith("done in about 8 min 56 s")
    assert shown(study(), begun(), ended(left_s=600.0), probe(8))[0].endswith("at most about 10 min 00 s")
    both = shown(study(), begun(), ended(left_s=600.0), probe(8, left_s=900.0))
    assert both[0].endswith("at most about 10 min 00 s")


def test_what_a_probe_did_is_gone_with_its_end() -> None:
    assert shown(study(), begun(), probe(), running(), ended()) == [
        "walk  3 of 24 trials, best min_avg_util 61.2 ± 0.8 (#7)"
    ]
    over = CaseEnded(case="walk", ending="the trial budget is used", probed=1, why=None)
    assert shown(study(), begun(), probe(), ended(), over)[0].endswith("(#7), ended")


def test_each_worker_shows_its_probe_on_its_own_devices() -> None:
    one, two = "worker 1 (0)", "worker 2 (1)"
    lines = shown(
        (study(devices=("cuda:0",)), one),
        (study(devices=("cuda:1",)), two),
        (begun(), one),
        (probe(7), one),
        (probe(8), two),
        (running(utilisation=(50.0,)), two),
    )
    assert lines[1:] == [
        "  worker 1 (0): #7: starting",
        "    num_envs=4096",
        "  worker 2 (1): #8: iteration 3 of 7, 1 min 04 s, 61.2 ± 0.8, 15000 samples/s so far",
        "    num_envs=4096",
        "    cuda:1 ▅  50 %",
    ]


def test_a_worker_that_has_ended_shows_nothing() -> None:
    board = Board()
    for event in (study(), begun(), probe()):
        board.take(event, "one")
    board.forget("one")
    file = io.StringIO()
    Console(file=file, width=80).print(board)
    assert file.getvalue() == "walk  2 of 24 trials, no best yet\n"


def test_cases_that_do_not_fit_share_a_line() -> None:
    cases = [f"case_{number}" for number in range(25)]
    over = CaseEnded(case="case_0", ending="the trial budget is used", probed=1, why=None)
    lines = shown(study(*cases), begun("case_0"), over, begun("case_1"), probe(case="case_1"), height=12)
    assert lines == [
        "case_1  2 of 24 trials, no best yet",
        "24 other case(s): 1 ended, 23 waiting",
        "  case_1 #7: starting",
        "    num_envs=4096",
    ]


@given(
    size=st.tuples(st.integers(1, 200), st.integers(1, 60)),
    cases=st.integers(1, 30),
    workers=st.integers(1, 12),
    devices=st.integers(0, 16),
    moments=st.integers(0, 3),
)
def test_no_size_of_the_terminal_breaks_the_view(
    size: tuple[int, int], cases: int, workers: int, devices: int, moments: int
) -> None:
    width, height = size
    events: list[tuple[Event, str]] = []
    for number in range(workers):
        worker, case = f"worker {number}", f"case_{number % cases}"
        labels = tuple(f"cuda:{device}" for device in range(devices))
        events += [(study(*(f"case_{one}" for one in range(cases)), devices=labels), worker), (begun(case), worker)]
        events += [(probe(number, case), worker)]
        events += [(running(utilisation=(97.0,) * devices), worker)] * moments
    lines = shown(*events, width=width, height=height)
    assert len(lines) <= max(height - 2, 1)
    assert all(len(line) <= width for line in lines)


@given(st.lists(st.none() | st.floats(-10, 1000), max_size=POINTS))
def test_a_sparkline_has_a_character_for_each_value(values: list[float | None]) -> None:
    line = sparkline(values)
    assert len(line) == len(values)
    assert set(line) <= {" ", *BARS}
