"""The report of a study: what it says, and that it is one file which asks the network for nothing."""

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests_docs import ROOT

from tuner.errors import EmptyStoreError
from tuner.export.database import connect
from tuner.export.query import StudyReader
from tuner.export.records import TrialRecord
from tuner.kept.probe import KeptProbe
from tuner.probe.kinds import FailureKind
from tuner.probe.result import Failure
from tuner.report.facts import CaseFacts, gather, spent_s
from tuner.report.page import render
from tuner.report.words import faster, verdict

DATABASE = ROOT / "benchmarks/results/pi_plus_auto_two_h200/study.db"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    shutil.copy(DATABASE, folder / "study.db")
    return folder


@pytest.fixture(scope="module")
def cases(folder: Path) -> dict[str, CaseFacts]:
    reader = StudyReader(connect(f"sqlite:///{folder}/study.db"), "pi_plus")
    return {case.summary.case: case for case in gather(reader, folder)}


def test_a_stranger_reads_what_is_best_and_what_else_there_is(cases: dict[str, CaseFacts]) -> None:
    assert verdict(cases["deepmimic_pi_plus_ppo"]) == (
        "The best config reaches 95.3 ± 0.7 min_avg_util: "
        "num_envs=32768 agent_variant=hiutil update_epochs=40 batch_size=2. "
        "It makes 0.23 times the samples/s of the default at its rung. "
        "agent_variant, update_epochs, batch_size change what is learnt. "
        "Trial #9 makes 4.3 times as many samples/s as the best, at 88.1 ± 1.4: num_envs=32768 agent_variant=default."
    )
    assert faster(cases["amp_pi_plus"]) is None


def test_the_front_holds_what_no_other_config_beats_in_both(cases: dict[str, CaseFacts]) -> None:
    points = [point for case in cases.values() for point in case.points]
    assert any(not point.on_front for point in points)
    for case in cases.values():
        for point in (one for one in case.points if one.on_front):
            better = [one for one in case.points if one.value > point.value]
            assert all((one.samples_per_s or 0.0) < (point.samples_per_s or 0.0) for one in better)


def test_the_seconds_add_up(cases: dict[str, CaseFacts]) -> None:
    case = cases["deepmimic_pi_plus_ppo"]
    assert sum(case.spent_s.values()) == pytest.approx(5708, abs=1)


class Outside(HTMLParser):
    """Collects what a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [value for name, value in attrs if name in {"src", "href"} and value and value[0] != "#"]


def test_the_page_is_one_file(cases: dict[str, CaseFacts]) -> None:
    page = render("pi_plus", list(cases.values()), form="html", commands=dict.fromkeys(cases, "tuner plan"))
    outside = Outside()
    outside.feed(page)
    assert outside.fetched == []
    assert page.count("Plotly.newPlot") >= 3 * len(cases)


def test_text_of_a_trainer_stays_text(cases: dict[str, CaseFacts], folder: Path) -> None:
    bad = "<script>alert(1)</script>"
    page = render(bad, list(cases.values())[:1], form="html", commands={next(iter(cases)): bad})
    assert bad not in page
    assert "&lt;script&gt;alert(1)" in page


def test_the_markdown_form_says_the_same(cases: dict[str, CaseFacts]) -> None:
    text = render("pi_plus", list(cases.values()), form="md", commands=dict.fromkeys(cases, "tuner plan --best"))
    assert all(verdict(case) in text for case in cases.values())
    assert len(re.findall(r"^\| \w+_pi_plus", text, re.MULTILINE)) == len(cases)


def test_a_study_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(EmptyStoreError, match="no study 'nowhere'"):
        gather(StudyReader(connect(f"sqlite:///{folder}/study.db"), "nowhere"), folder)


seconds = st.none() | st.floats(0, 1e4)
probes = st.builds(
    KeptProbe,
    status=st.sampled_from(["ok", "pruned", "gpu_oom", None]),
    total_s=seconds,
    start_up_s=seconds,
    window_s=seconds,
    failure=st.none() | st.just(Failure(kind=FailureKind.GPU_OOM, rule="r", detail="d")),
)


@given(st.lists(probes, max_size=5), st.integers(1, 8))
def test_no_second_is_counted_twice(probes: list[KeptProbe], devices: int) -> None:
    trials = [
        TrialRecord(case="c", number=number, state="COMPLETE", probe=probe) for number, probe in enumerate(probes)
    ]
    spent = spent_s(trials, devices)
    assert sum(spent.values()) == pytest.approx(sum(devices * (probe.total_s or 0.0) for probe in probes))
    assert all(one > 0.0 for one in spent.values())
