"""The live view, rendered to a console of a recorded size."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from tuner.cli.screen import Bars
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


def shown(*events: Event | tuple[Event, str], width: int = 100, encoding: str = "utf-8") -> list[str]:
    """Return the lines of the view after these events, without the bars; an event may come with its worker."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace", write_through=True)
    console = Console(file=file, width=width, color_system=None)
    bars = Bars(console)
    for moment in events:
        event, worker = moment if isinstance(moment, tuple) else (moment, "")
        bars.handle(event, worker)
    console.print(bars)
    file.seek(0)
    return [" ".join(re.sub("[━╺╸]+|--+", "|", line).split()) for line in file.read().splitlines()]


def test_a_case_shows_its_trials_and_its_best_with_the_error() -> None:
    best = BestSoFar(value=61.25, error=0.8, trial=1)
    assert shown(study(), begun(best=best)) == ["walk 2/24 | best min_avg_util 61.2 ± 0.8 (#1)"]
    assert shown(study(), begun()) == ["walk 2/24 | no best yet"]
    assert shown(study(), begun(), encoding="ascii") == ["walk 2/24 no best yet"]


def test_a_speed_has_the_gain_that_the_end_tells_and_none_where_it_tells_none() -> None:
    known = BestSoFar(value=1260.0, error=9.0, trial=1, times=4.2)
    for best, gained in ((known, " (4.2 times)"), (replace(known, times=None), "")):
        later = replace(ended(), values=(1260.0,), best=best)
        events = [replace(study(), objectives=("samples_per_s",)), begun(), later, probe(left_s=60.0)]
        line = shown(*events, width=80)[0]
        assert line == f"walk 3/24 | about 1 min 00 s left; best 1,260 samples/s{gained}"


def test_a_probe_shows_its_phase_its_devices_and_its_config() -> None:
    for event, phase in [
        (None, "starting"),
        (running("starting", None, 8.0), "starting, 8.0 s"),
        (running("warm-up", 1, 31.0), "warm-up, iteration 1, 31.0 s"),
        (
            running(utilisation=(97.0, 5.0)),
            "measuring, iteration 3, 1 min 04 s: 61.2 ± 0.8, 15,000 samples/s; cuda:0 97 %, cuda:1 5 % busy",
        ),
    ]:
        events = [study(), begun(), probe(), *([event] if event else [])]
        assert shown(*events)[1:] == [f"#7 {phase}", "num_envs=4096"]


def test_of_eight_devices_the_range_of_their_shares_is_shown() -> None:
    devices = tuple(f"cuda:{place}" for place in range(8))
    shares = (97.0, 5.0, 98.0, 91.0, 97.0, 97.0, 97.0, 97.0)
    lines = shown(study(devices=devices), begun(), probe(), running(utilisation=shares), width=80)
    assert "; 8 devices 5 to 98 % busy" in " ".join(lines)


@pytest.mark.parametrize("width", [80, 140])
def test_each_word_of_a_long_case_is_whole(width: int) -> None:
    case, best = "deepmimic_pi_plus_ppo", BestSoFar(value=120_770.0, error=9.0, trial=1, times=13.42)
    events = [replace(study(case), objectives=("samples_per_s",)), begun(case, best=best), probe(12, case, left_s=92.0)]
    lines = shown(*events, replace(running(utilisation=(97.0, 95.0)), case=case), width=width)
    assert max(map(len, lines)) <= width
    assert " ".join(lines) == (
        "deepmimic_pi_plus_ppo 2/24 | about 28 s left; best 120,770 samples/s (13.4 times) "
        "#12 measuring, iteration 3, 1 min 04 s: 61.2 ± 0.8, 15,000 samples/s; cuda:0 97 %, cuda:1 95 % busy "
        "num_envs=4096"
    )


def test_the_time_left_stands_first_as_far_as_it_is_known() -> None:
    assert "left" not in shown(study(), begun(), probe())[0]
    assert shown(study(), begun(), probe(left_s=600.0))[0].endswith("about 10 min 00 s left; no best yet")
    assert shown(study(), begun(), probe(left_s=600.0), running())[0].endswith("about 8 min 56 s left; no best yet")


def test_a_case_may_be_called_as_the_bar_of_all_cases() -> None:
    rows = shown(study("cases", "run"), begun("cases"), CaseEnded(case="cases", ending="done", probed=1, why=None))
    assert rows == ["cases 1/2 | ended"]


def test_what_a_probe_did_is_gone_with_its_end() -> None:
    over = CaseEnded(case="walk", ending="the trial budget is used", probed=1, why=None)
    lines = shown(study(), begun(), probe(), running(), ended())
    assert lines == ["walk 3/24 | best min_avg_util 61.2 ± 0.8 (#7)"]
    assert shown(study(), begun(), probe(), ended(), over) == []
    assert shown(study("walk", "run"), begun(), probe(), ended(), over) == ["cases 1/2 | ended"]


def test_each_worker_shows_its_probe_on_its_own_devices() -> None:
    first, second = "worker 1 (0)", "worker 2 (1)"
    over = CaseEnded(case="walk", ending="the rest waits for the probes of other workers", probed=1, why=None)
    lines = shown(
        (study(devices=("cuda:0",)), first),
        (study(devices=("cuda:1",)), second),
        (begun(), first),
        (probe(7), first),
        (probe(8), second),
        (running("starting", utilisation=(50.0,)), second),
        (over, first),
        width=140,
    )
    assert lines[1:] == [
        "worker 1 (0) #7 starting",
        "num_envs=4096",
        "worker 2 (1) #8 starting, iteration 3, 1 min 04 s; cuda:1 50 % busy",
        "num_envs=4096",
    ]
    assert lines[0].startswith("walk")  # the other worker still probes


def test_a_worker_that_has_ended_shows_nothing() -> None:
    file = io.StringIO()
    console = Console(file=file, width=80)
    bars = Bars(console)
    for event in (study(), begun(), probe()):
        bars.handle(event, "one")
    bars.remove_probe("one")
    console.print(bars)
    assert "#7" not in file.getvalue()
