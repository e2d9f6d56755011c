"""The line to copy of a report: the training command itself, or the command that prints a script."""

import html
from pathlib import Path

import pytest
from tests_cli import study_file
from tests_filled import FilledDatabase

from tuner.cli.report import lines_to_copy
from tuner.drafting.writing import origin_line
from tuner.export.reader import StudyReader, connect
from tuner.report.facts import gather
from tuner.report.page import render
from tuner.running.job import open_workbench

PLAN = ["tuner", "plan", "--best"]


@pytest.mark.parametrize(
    ("command", "typed", "line"),
    [
        ("python train.py --workers {workers}", "", "tuner plan --best --cases command"),
        ("python train.py --batch {batch}", "", "tuner plan --best --cases command"),  # no whole number for this device
        (
            "python train.py --workers {workers} --out_dir {out_dir} --max_steps {iterations}",
            "python train.py --workers 0 --out_dir out --max_steps 300",
            "python train.py --workers 4 --out_dir out --max_steps 300",
        ),
    ],
)
def test_a_study_of_a_command_shows_the_command_with_the_best_values(
    database: FilledDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, command: str, typed: str, line: str
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # which a line to copy would name
    options = {"command": command, "progress": ["step (?P<iteration>\\d+)"]}
    options["computed"] = {"batch": "6 / ({workers} * {ranks})"} if "{batch}" in command else {}
    trainer = {"name": "command", "options": options}
    study = study_file(tmp_path, trainer=trainer, space={"workers": {"choices": [0, 4]}}, cases=["*"])
    bench = open_workbench(str(study), devices="cpu:1", runs=tmp_path)
    case = database.case("command", trainer={"name": "command"})
    for workers, util in ((0, 10.0), (4, 80.0)):
        database.add(case, {"workers": workers}, utils=(util,))
    facts = gather(StudyReader(connect(database.url), "pi_plus"), tmp_path)
    if typed:
        study.write_text(f"{origin_line(typed.split())}\n{study.read_text()}")
    lines = lines_to_copy(PLAN, bench, facts)
    assert lines == {"command": line}
    assert html.escape(line) in render(facts, commands=lines)
    assert lines_to_copy(PLAN, None, facts) == {"command": "tuner plan --best --cases command"}
    assert lines_to_copy(None, bench, facts) == {}
