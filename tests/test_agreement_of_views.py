"""Closing table, status, report, tables, note, plan and race agree on best, value, error, default and rival."""

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rich.console import Console
from ruamel.yaml import YAML
from tests_filled import FilledDatabase, filled
from typer.testing import CliRunner

from tuner.cli.main import app
from tuner.cli.screen import summary_table
from tuner.errors import StoreError
from tuner.export.case_view import CaseView
from tuner.export.gain_in_words import gain_text
from tuner.export.reader import StudyReader, connect
from tuner.export.summary import ConfigRow
from tuner.export.tables import best_by_case
from tuner.export.wording import with_error
from tuner.report.facts import CaseFacts, gather, result_sentences
from tuner.tools.racing import Entrant, entrants

DEFAULTS = [{"num_envs": rung, "batch": 1} for rung in (8, 16)]
STUDY = {
    "name": "demo",
    "trainer": {"name": "command", "options": {"command": "true {num_envs} {batch}", "cases": ["walk", "run"]}},
    "devices": "cpu:2",
    "space": {"num_envs": {"ladder": [8, 16]}, "batch": {"choices": [1, 2]}},
}

COLUMNS: Sequence[str] = ("case", "status", "value", "config", "speed", "gain", "trial", "counts")

Told = dict[str, Any]
trials = st.fixed_dictionaries(
    {
        "config": st.builds(
            lambda rung, batch: {"num_envs": rung, "batch": batch}, *map(st.sampled_from, [(8, 16), (1, 2)])
        ),
        "status": st.sampled_from(["ok", "ok", "ok", "ok", "pruned", "gpu_oom", "crash"]),
        "util": st.integers(0, 12).map(lambda tenths: 90.0 + tenths / 2),
        "error": st.sampled_from([None, 0.1, 1.0, 3.0]),
        "warm": st.booleans(),
        "samples_per_s": st.sampled_from([None, 100.0, 140.0, 400.0]),
        "ineligible": st.sampled_from([None, None, None, "too little memory stayed free"]),
        "beside": st.sampled_from([None, 0, 3]),
        "delayed": st.sampled_from([None, None, 20.0]),
        "retry": st.booleans(),
    }
)
cases = st.lists(trials, max_size=8)


def plain(rung: int, util: float, **facts: Any) -> Told:
    usual = {"status": "ok", "error": 0.1, "warm": False, "samples_per_s": 100.0, "ineligible": None, "beside": None}
    return {"config": {"num_envs": rung, "batch": 1}, "util": util, "retry": False, **usual, **facts}


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(walk=cases, run=cases)
@example(walk=[plain(16, 85.0, beside=3), plain(16, 95.0, beside=0)], run=[])
@example(walk=[plain(16, 95.0), plain(16, 95.0, delayed=20.0)], run=[])
@example(walk=[plain(8, 97.63, error=0.39), plain(16, 97.60, error=0.32, samples_per_s=190.0)], run=[])
@example(walk=[plain(8, 95.0, warm=True), plain(8, 80.0), plain(16, 96.0, warm=True, samples_per_s=200.0)], run=[])
def test_all_views_of_a_case_agree(empty_file: Path, tmp_path_factory: Any, walk: list[Told], run: list[Told]) -> None:
    folder = tmp_path_factory.mktemp("study")
    file = folder / "study.db"
    file.write_bytes(empty_file.read_bytes())
    with filled(f"sqlite:///{file}") as database:
        for name, told in (("walk", walk), ("run", run)):
            fill(database, name, told)
    reader = StudyReader(connect(f"sqlite:///{file}"), "demo")
    ranked = {facts.view.name: facts for facts in gather(reader, folder).cases}
    reports = [ranked[view.name] for view in reader.cases]
    shown: list[dict[str, str]] = [dict(zip(COLUMNS, cells, strict=True)) for cells in table(reader)]
    printed = printed_plan(folder, file)
    scripts = planned(printed)
    for view, row, facts, cells, exported in zip(
        reader.cases, reader.rows, reports, shown, best_by_case(reader).rows, strict=True
    ):
        assert row == facts.summary
        if row.best is None:
            assert (cells["trial"], exported.get("trial"), facts.view.best) == ("", None, None)
            assert view.name not in scripts
            continue
        agrees_on_the_best(view, row.best, facts, cells, exported)
        assert scripts[view.name] == (row.best.trial, row.best.config)
        of_case = printed.partition(f"# {view.name}: trial ")[2].partition("\n")[0]
        assert of_case.partition("; the gain: ")[2] == (gain_text(row) if row.gain else "")
        assert all(f"# {view.name}: {doubt}\n" in printed for doubt in row.doubts)
        named = set(re.findall(r"#(\d+) makes ", result_sentences(facts)))
        assert named == {str(other.trial) for other in (row.faster, row.fastest) if other}
        if row.default and row.default.config["num_envs"] == row.best.config["num_envs"]:
            assert [row.default.value] == [one.value for one in facts.points if one.config == row.default.config]
        for racing in raced(view):
            agrees_with_the_race(racing, row.best, row.default, row.faster)


def fill(database: FilledDatabase, name: str, told: list[Told]) -> None:
    case = database.case(name, study="demo", defaults=DEFAULTS)
    for one in told:
        facts = dict(one)
        util, error = facts.pop("util"), facts.pop("error")
        metrics = {"min_avg_util": util, "min_avg_util_se": error}
        database.add(case, utils=(util, util), metrics=metrics, **facts)


def table(reader: StudyReader) -> list[tuple[str, ...]]:
    """Return the cells of the table that `optimize` and `status` print, without the rows of the fastest configs."""
    made = summary_table(reader.rows)
    Console(file=io.StringIO()).print(made)
    rows = zip(*([str(cell) for cell in column.cells] for column in made.columns), strict=True)
    return [row for row in rows if not row[0].endswith(", fastest")]


def printed_plan(folder: Path, file: Path) -> str:
    """Return what `tuner plan --best` prints, with each remark on one line."""
    study = folder / "demo.yaml"
    with study.open("w") as to:
        YAML(typ="safe").dump(STUDY, to)
    words = ["plan", "--study", study, "--best", "--storage", f"sqlite:///{file}", "--runs", folder]
    said = CliRunner().invoke(app, list(map(str, words)))
    assert said.exception is None or isinstance(said.exception, StoreError)
    return re.sub(r"\n#  +", " ", said.stdout)


def planned(printed: str) -> dict[str, tuple[int, dict[str, Any]]]:
    """Return case → trial and config in the scripts of `tuner plan --best`."""
    remarks = [line.removeprefix("# ").partition(": ") for line in printed.splitlines() if line.startswith("# ")]
    numbers = {case: int(text.split("#")[1].split(":")[0]) for case, _, text in remarks if text.startswith("trial #")}
    configs = {case: json.loads(text) for case, _, text in remarks if text.startswith("{")}
    return {case: (number, configs[case]) for case, number in numbers.items()}


def agrees_on_the_best(view: CaseView, best: ConfigRow, facts: CaseFacts, cells: dict[str, str], exported: Any) -> None:
    said = with_error(best.value, best.error)
    assert (cells["trial"], cells["value"].split(" (")[0]) == (f"#{best.trial}", said)
    assert (exported["trial"], exported["value"], exported["readings"]) == (
        best.trial,
        round(best.value, 2),
        best.readings,
    )
    assert exported["min_avg_util_se"] == (None if best.error is None else round(best.error, 2))
    assert f"reaches {said} " in result_sentences(facts)
    (starred,) = (one for one in facts.points if facts.is_best(one))
    assert (starred.value, starred.widened_error, starred.config) == (best.value, best.error, best.config)
    assert [one.trial for one in view.configs if one.launch_key == starred.launch_key] == [best.trial]


def raced(view: CaseView) -> list[list[Entrant]]:
    """Return the configs of a race; none where there are not two."""
    try:
        return [entrants(view)]
    except StoreError:
        return []


def agrees_with_the_race(
    racing: list[Entrant], best: ConfigRow, default: ConfigRow | None, rival: ConfigRow | None
) -> None:
    by_kind = {kind: one for one in racing for kind in one.why.split(", ")}
    assert by_kind["best of the search"].config == best.config
    assert by_kind["best of the search"].measured["min_avg_util"] == best.value
    assert by_kind["default"].config == {"num_envs": best.config["num_envs"], "batch": 1}
    if default and default.config["num_envs"] == best.config["num_envs"]:
        assert by_kind["default"].config == default.config
    if rival:
        assert by_kind["most samples/s"].config == rival.config
