"""Where events are shown: as lines, live, or as JSON."""

import io
import json
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
from rich.console import Console
from test_board import begun, ended, probe, running, study
from tests_docs import of

from tuner.cli.screen import JsonScreen, LineScreen, LiveScreen, open_screen
from tuner.running.events import (
    KINDS,
    AutoFixed,
    AutoStarted,
    CaseEnded,
    Event,
    ProbeStarted,
    StudyEnded,
    from_json,
    to_json,
)

EVENTS: list[Event] = [
    study(),
    begun(),
    AutoStarted(case="walk", parameter="num_envs"),
    AutoFixed(case="walk", parameter="num_envs", values=(64, 128)),
    probe(left_s=60.0),
    running(utilisation=(50.0, 100.0)),
    ended(),
    CaseEnded(case="walk", ending="the trial budget is used", probed=1, why=None),
    StudyEnded(study="demo", cases=({"case": "walk", "best": None},)),
]


def terminal() -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, width=100, height=25, force_terminal=True, color_system=None), file


def test_every_kind_of_event_survives_json() -> None:
    assert {type(event) for event in EVENTS} == set(KINDS.values())
    for event in EVENTS:
        assert from_json(json.loads(to_json(event, "worker 1"))) == event


def test_another_object_is_no_event() -> None:
    assert from_json({"complaint": "x"}) is None


def test_json_lines_name_event_and_worker(capsys: pytest.CaptureFixture[str]) -> None:
    screen = JsonScreen()
    screen.show(probe(left_s=60.0), "worker 1")
    screen.say("for people")
    screen.close()
    assert json.loads(capsys.readouterr().out) == {
        "event": "probe_started",
        "worker": "worker 1",
        "case": "walk",
        "trial": 7,
        "config": {"num_envs": 4096},
        "left": None,
        "left_s": 60.0,
    }


def test_every_field_of_an_event_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs/watching.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^- `(\w+)`: (.*)$", page, re.MULTILINE))
    assert rows.keys() == KINDS.keys()
    for word, kind in KINDS.items():
        assert [field.name for field in fields(kind) if f"`{field.name}`" not in rows[word]] == []


def test_the_documented_line_is_an_event() -> None:
    (example,) = of("watching.md", "json")
    assert isinstance(from_json(json.loads(example.text)), ProbeStarted)


def test_lines_of_a_team_carry_the_name_of_their_worker() -> None:
    file = io.StringIO()
    screen = LineScreen(Console(file=file, width=100))
    for event in EVENTS:
        screen.show(event, "worker 1")
    assert file.getvalue().splitlines()[0] == "worker 1: case walk: 2 of 24 trials done"
    assert file.getvalue().splitlines()[3].startswith("worker 1: #7 (trial 3 of 24) num_envs=4096: ok 61.2 ± 0.8")


def test_a_terminal_shows_the_lines_and_then_nothing_live() -> None:
    console, file = terminal()
    screen = open_screen(console)
    assert isinstance(screen, LiveScreen)
    for event in EVENTS:
        screen.show(event)
    screen.show(ended(left_s=70.0))
    screen.say("a process is left")
    screen.close()
    screen.close()
    shown = file.getvalue()
    assert "#7 num_envs=4096: ok 61.2 ± 0.8" in shown
    assert "1 min 10 s left" not in shown  # the bar has the time left, which shrinks
    assert "a process is left" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1  # the cursor is hidden once, and shown again


@pytest.mark.parametrize("live", [False, True])
def test_a_line_leaves_out_what_every_config_has_alike(live: bool) -> None:
    console, file = terminal()
    screen = LiveScreen(console) if live else LineScreen(console)
    for fixed in ((), ("batch_size",), ("batch_size", "num_envs")):
        screen.show(replace(begun(), fixed=fixed))
        screen.show(replace(ended(), config={"num_envs": 64, "batch_size": 32}))
    screen.close()
    configs = re.findall(r"#7 .*?((?:\w+=\d+ ?)+): ok", file.getvalue())
    assert configs == ["num_envs=64 batch_size=32", "num_envs=64", "num_envs=64 batch_size=32"]


def test_a_terminal_that_is_gone_ends_nothing() -> None:
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(5, "Input/output error")

    screen = LiveScreen(Console(file=Gone(), width=100, force_terminal=True))
    for event in EVENTS:
        screen.show(event)
    screen.close()


@pytest.mark.parametrize(
    "console",
    [Console(file=io.StringIO(), width=100), Console(file=io.StringIO(), force_terminal=True, quiet=True)],
    ids=["no terminal", "quiet"],
)
def test_elsewhere_nothing_is_live(console: Console) -> None:
    assert isinstance(open_screen(console), LineScreen)


def test_lines_say_once_what_holds_for_most_trials_and_then_how_busy_others_were() -> None:
    file = io.StringIO()
    screen = LineScreen(Console(file=file, width=300))
    for share in (74, 87, 91):
        load = f"other processes used {share} % of the processors, so another run may give another value"
        pause = f"an epoch's end costs 0.{share} s; the numbers are those without it"
        screen.show(replace(ended(), notes=(load, "a seed", pause)))
    told = file.getvalue().splitlines()
    assert ["epoch's end" in one for one in told] == ["another run" in one for one in told] == [True, False, False]
    assert all(f"used {share} %" in one for share, one in zip((74, 87, 91), told, strict=True))
    assert all("a seed" in one for one in told)
