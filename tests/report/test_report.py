"""The report of a study: what it says, and that it is one file which fetches nothing."""

import json
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path

import plotly.graph_objects as go
import pytest
from tests_filled import FilledDatabase

from tuner.errors import EmptyStoreError
from tuner.export.reader import StudyReader, connect
from tuner.records.case_record import RunRecord, StudyAttributes
from tuner.report.charts import parallel, pictures
from tuner.report.facts import (
    CaseFacts,
    StudyFacts,
    case_headline,
    explanation,
    gather,
    result_sentences,
    study_headline,
    when_found,
)
from tuner.report.page import render


def test_a_stranger_reads_what_is_best_and_what_else_there_is(cases: dict[str, CaseFacts]) -> None:
    said = result_sentences(cases["deepmimic_pi_plus_ppo"])
    for fact in (
        "The best reaches 95.3 ± 0.7 min_avg_util, 7.8 percentage points above the default, #9, at 0.24 ",
        "agent_variant, update_epochs, batch_size change what is learnt. ",
        "#9 makes 4.3 times the best's samples/s, at 88.1 min_avg_util, in sessions, where the best has 95.9, ",
    ):
        assert said.count(fact) == 1
    rival = cases["amp_pi_plus"].summary.faster
    assert rival is not None
    assert f"#{rival.trial} makes 7.1 times" in result_sentences(cases["amp_pi_plus"])


def test_a_stranger_reads_what_was_given_up_and_what_is_unconfirmed(
    cases: dict[str, CaseFacts],
) -> None:
    case = cases["amp_pi_plus"]
    best = case.summary.best
    assert best is not None
    row = replace(
        case.summary,
        best=replace(best, trial=2, value=97.60, error=0.32),
        instead_of=replace(best, trial=1, value=97.63, error=0.39, times=0.52),
        unconfirmed=replace(best, trial=9, value=98.7, error=0.5),
    )
    said = result_sentences(replace(case, summary=row))
    assert "97.63 ± 0.39 against 97.60 ± 0.32" in said
    assert "for 1.9 times the samples/s" in said
    assert "unconfirmed: #9 measured 98.70 ± 0.50 in sessions" in said


def test_a_default_that_was_measured_in_another_way_than_the_best_is_not_subtracted(
    cases: dict[str, CaseFacts],
) -> None:
    case = cases["amp_pi_plus"]
    default = case.summary.default
    assert default is not None
    warm = replace(default, value=97.0, error=1.0, measured="warm", beside_best=None)
    said = result_sentences(replace(case, summary=replace(case.summary, default=warm, gain=None)))
    assert "97.0 ± 1.0; the gain is unknown: sessions alone" in said
    assert "points" not in said


def test_a_replayed_study_says_so(study: StudyFacts) -> None:
    first = study.cases[0]
    replayed = replace(first, summary=replace(first.summary, replay_of="walk.parquet of 2026-11-22"))
    assert "eplay of walk.parquet of 2026-11-22" in result_sentences(replayed)


def test_a_stranger_reads_what_limits_a_case_and_what_to_do(cases: dict[str, CaseFacts]) -> None:
    said = result_sentences(cases["amp_pi_plus"])
    assert "utilisation 95 %, SM 87 %, tensor 0 %, DRAM 14 %, 1247 W" in said
    assert "Compute-bound: the cards are near their limit; the tensor cores are idle, so bf16 or TF32" in said
    assert "Balanced: " in result_sentences(cases["add_pi_plus"])


def test_a_stranger_reads_when_the_best_was_found(cases: dict[str, CaseFacts]) -> None:
    assert when_found(cases["deepmimic_pi_plus_ppo"]) == (
        "Trial #6 first measured the best config, after 2,079 device-seconds (36 % of all). "
        "The rest made sure that no other config is better. "
        "No further probe pays: 98% sure that no config is 1% better than the best."
    )


def test_a_race_shows_its_curves_and_its_winner(cases: dict[str, CaseFacts]) -> None:
    runs = tuple(
        RunRecord(
            config={"num_envs": envs},
            seed=seed,
            seconds=60.0,
            trained_s=60.0,
            curve=((1.0, 0.5), (50.0, envs / 64 + seed)),
        )
        for envs in (64, 128)
        for seed in (0, 1)
    )
    assert not [one for one in pictures(cases["amp_pi_plus"]) if one.name == "race"]
    case = cases["amp_pi_plus"]
    kept = StudyAttributes({f"race.{number:04d}": asdict(run) for number, run in enumerate(runs)})
    raced = replace(case, view=replace(case.view, attributes=kept))
    (drawn,) = [one for one in pictures(raced) if one.name == "race"]
    assert [trace["name"] for trace in drawn.data] == ["num_envs=128"] * 2 + ["num_envs=64"] * 2
    assert [trace["showlegend"] for trace in drawn.data] == [True, False, True, False]
    assert "In the race num_envs=128 learnt most: score 1.83 ± 0.33 after 60 s of training, mean of 2 runs." in (
        drawn.caption
    )


def test_the_head_counts_the_trainable_cases(study: StudyFacts) -> None:
    assert study_headline(study) == "3 of 3 begun cases have a best config."
    assert study_headline(replace(study, waiting=())) == "3 of 3 trainable cases have a best config."
    first, second, third = study.cases
    assert explanation(study).startswith("min_avg_util is the mean utilisation of the least busy device, in percent. ")
    failed = replace(first, summary=replace(first.summary, best=None))
    partly = replace(study, cases=(failed, second, third), waiting=("vault_pi_plus",))
    assert study_headline(partly) == "2 of 4 trainable cases have a best config; 1 tried without success, 1 not begun."


def test_the_front_holds_what_no_other_config_beats_in_both(cases: dict[str, CaseFacts]) -> None:
    assert any(not case.on_front(point) for case in cases.values() for point in case.points)
    for case in cases.values():
        for point in (one for one in case.points if case.on_front(one)):
            better = [one for one in case.points if one.value > point.value]
            assert all((one.samples_per_s or 0.0) < (point.samples_per_s or 0.0) for one in better)


def test_the_seconds_add_up(cases: dict[str, CaseFacts]) -> None:
    case = cases["deepmimic_pi_plus_ppo"]
    assert case.device_s == pytest.approx(5708, abs=1)


def test_the_rungs_below_an_axis_have_room(cases: dict[str, CaseFacts]) -> None:
    for case in cases.values():
        (drawn,) = [one for one in pictures(case) if one.name == "ladder"]
        ticks = drawn.layout["xaxis"]["tickvals"]
        assert {*ticks} <= {point.config.get("num_envs") for point in case.points}
        assert len(ticks) <= 7


def test_the_search_shows_which_trials_a_session_measured(cases: dict[str, CaseFacts]) -> None:
    case = cases["amp_pi_plus"]
    (drawn,) = (one for one in pictures(case) if one.name == "history")
    each, _, chosen = drawn.data
    assert drawn.layout["shapes"][0]["y0"] == case.view.default.value  # pyright: ignore[reportOptionalMemberAccess]
    assert chosen["marker"]["symbol"] == "star"
    hollow = {
        said.split()[0] for said, symbol in zip(each["text"], each["marker"]["symbol"], strict=True) if "-" in symbol
    }
    assert hollow == {f"#{trial.number}" for trial in case.view.trials if trial.warm and trial.value is not None}
    assert drawn.caption.endswith("Hollow dots were measured in sessions.")
    assert drawn.layout["yaxis"]["title"]["text"] == "min_avg_util, %"


def test_the_ladder_has_one_star(cases: dict[str, CaseFacts]) -> None:
    (drawn,) = (one for one in pictures(cases["amp_pi_plus"]) if one.name == "ladder")
    assert drawn.data[0]["marker"]["symbol"].count("star") == 1


def test_the_case_that_gains_most_comes_first_and_one_without_a_best_last(
    study: StudyFacts, database: FilledDatabase, tmp_path: Path
) -> None:
    assert [case.summary.case for case in study.cases] == ["add_pi_plus", "amp_pi_plus", "deepmimic_pi_plus_ppo"]
    assert explanation(study).endswith("The case whose best gains most over the default comes first.")
    database.add(database.case("lost"), status="crash")
    database.add(database.case("found"), {"num_envs": 8}, utils=(50.0, 60.0))
    filled = gather(StudyReader(connect(database.url), "pi_plus"), tmp_path)
    assert [case.summary.case for case in filled.cases] == ["found", "lost"]


def test_a_page_begins_with_the_gain_the_line_to_copy_and_the_best_so_far(study: StudyFacts) -> None:
    command = "tuner plan --study pi_plus --best"
    page = render(study, commands={study.cases[0].summary.case: command})
    assert (
        case_headline(study.cases[0]).text == "Utilisation +27.2 percentage points"
    )  # the values are those of sessions
    assert case_headline(study.cases[0]).below.startswith(
        "It makes 0.19 times the samples/s of the default. The gain is that of sessions"
    )
    places = [page.index(words) for words in ("Utilisation +27.2", command, ">Copy<", "The best so far", "<h2>Cases")]
    assert places == sorted(places)


def test_a_default_of_another_rung_than_the_bests_is_named_with_its_rung(
    database: FilledDatabase, tmp_path: Path
) -> None:
    case = database.case("train", defaults=[{"num_envs": 8}, {"num_envs": 16}])
    for config, util, speed in (({"num_envs": 8}, 50.0, 10.0), ({"num_envs": 16, "batch": 2}, 60.0, 13.0)):
        database.add(case, config, utils=(util,), samples_per_s=speed)
    (facts,) = gather(StudyReader(connect(database.url), "pi_plus"), tmp_path).cases
    assert "1.3 times the samples/s of the default at num_envs=8. " in case_headline(facts).below


def test_a_case_of_a_speed_begins_with_how_many_times_as_fast_it_is(database: FilledDatabase, tmp_path: Path) -> None:
    case = database.case("train", objective="samples_per_s", defaults=[{"workers": 0}], trainer={"name": "command"})
    for workers, speed in ((0, 10.0), (4, 83.0)):
        database.add(case, {"workers": workers}, utils=(speed,), samples_per_s=speed)
    (facts,) = gather(StudyReader(connect(database.url), "pi_plus"), tmp_path).cases
    assert case_headline(facts).text == "8.3 times as fast: 10 → 83 samples/s"
    assert "times your command" in case_headline(facts).below


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ((0.5, 0.25), "Over the whole training the best is 1.50 times as fast as your command; steps are 50 % of the "),
        ((None, None), "The gain is that of training steps alone; with pauses it is unknown: an epoch's end costs 1.3"),
    ],
)
def test_what_pauses_make_of_a_gain_and_all_its_doubts_are_told(
    database: FilledDatabase, tmp_path: Path, shares: tuple[float | None, ...], said: str
) -> None:
    case = database.case("train", objective="samples_per_s", defaults=[{"workers": 0}], trainer={"name": "command"})
    for workers, share in zip((0, 4), shares, strict=True):
        speed, notes = 10.0 + 5 * workers, ("an epoch's end costs 1.3 s; the numbers are those without it",)
        facts = {"samples_per_s": speed, "step_share": share, "notes": notes, "start_up_s": 5.0 + 5 * workers}
        database.add(case, {"workers": workers}, utils=(speed,), **facts)
    (facts,) = gather(StudyReader(connect(database.url), "pi_plus"), tmp_path).cases
    is_whole = None not in shares
    assert case_headline(facts).text.startswith(
        "1.5 times as fast over the whole training" if is_whole else "3 times as fast: "
    )
    assert ("with pauses it is unknown" in case_headline(facts).below) is not is_whole
    for fact in (
        said,
        "n epoch's end costs 1.3 s. ",
        "Your command ran once: ±",
        "starts 20.0 s later: it pays where your command",
    ):
        assert result_sentences(facts).count(fact) == 1


def test_a_case_whose_best_is_not_the_fastest_has_two_rows(study: StudyFacts) -> None:
    page = render(study, commands={})
    assert page.count('<tr role="row" class="slower">') == len(study.cases)
    assert page.count(">the fastest that trains as the default</span>") == len(study.cases)


def test_methods_and_what_is_safe_for_all_cases_are_told(study: StudyFacts) -> None:
    page = render(study, commands={})
    assert "num_envs 6,250 is known to be safe for all cases. No trial failed." in page
    assert [row["method"] for row in study.methods] == ["amp", "deepmimic", "add"]


def test_all_trials_are_lines_between_the_axes_and_the_best_is_marked(cases: dict[str, CaseFacts]) -> None:
    case = cases["add_pi_plus"]
    drawn = parallel(case)
    assert drawn is not None
    assert [axis.name for axis in drawn.axes] == [
        *("num_envs", "agent_variant", "update_epochs", "batch_size", "min_avg_util", "samples/s")
    ]
    assert len(drawn.kinds) == len(drawn.words) == len(case.view.trials)
    assert {kind for kind, words in zip(drawn.kinds, drawn.words, strict=True) if "#13 " in words} == {"best"}
    for axis in drawn.axes:
        assert all(place is None or 0.0 <= place <= 1.0 for place in axis.places)
        assert len(axis.places) == len(drawn.kinds)
    (epochs,) = (axis for axis in drawn.axes if axis.name == "update_epochs")
    assert [label for _, label in epochs.ticks] == ["-", "20", "30", "40"]


def test_what_is_not_there_is_named(cases: dict[str, CaseFacts]) -> None:
    assert cases["amp_pi_plus"].missing == (
        "what the devices of the best's probe showed over time: there is no series in probes/amp_pi_plus/0020",
    )


class Page(HTMLParser):
    """Collects what a page would fetch, and the data of its pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.pictures: list[dict[str, object]] = []
        self._in_data = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [value for name, value in attrs if name in {"src", "href"} and value and value[0] != "#"]
        self._in_data = ("type", "application/json") in attrs

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self.pictures.append(json.loads(data))
            self._in_data = False


def test_the_page_is_one_file_with_pictures_that_plotly_knows(study: StudyFacts) -> None:
    html = render(study, commands={case.summary.case: "tuner plan" for case in study.cases})
    page = Page()
    page.feed(html)
    assert page.fetched == []
    assert "default-src 'none'" in html
    drawn = [picture for picture in page.pictures if "layout" in picture]
    assert len(drawn) == 3 * len(study.cases)
    assert len(page.pictures) == 4 * len(study.cases)
    for picture in drawn:
        go.Figure(picture)  # raises ValueError for a name or a value that plotly does not know


def test_every_picture_says_in_words_what_it_shows(cases: dict[str, CaseFacts]) -> None:
    for case in cases.values():
        for picture in pictures(case):
            assert picture.title
            assert picture.caption.endswith(".")


@pytest.mark.parametrize(
    ("objective", "said"),
    [("min_avg_util", "its min_avg_util is higher"), ("mfu", "its mfu is higher"), ("samples_per_s", None)],
)
def test_what_could_be_chosen_is_said_of_the_objective(
    cases: dict[str, CaseFacts], objective: str, said: str | None
) -> None:
    """A speed is not set against itself."""
    case = cases["amp_pi_plus"]
    case = replace(case, summary=replace(case.summary, objective=objective))
    captions = [picture.caption for picture in pictures(case) if picture.name == "choices"]
    assert [said in caption for caption in captions if said] == ([True] if said else [])
    assert len(captions) == bool(said)


def test_a_config_above_the_best_is_explained(cases: dict[str, CaseFacts]) -> None:
    (_, choices, *_), (_, others, *_) = (pictures(cases[name]) for name in ("amp_pi_plus", "deepmimic_pi_plus_ppo"))
    assert choices.caption.endswith("were measured in sessions alone, which may read too high.")
    assert "sessions" not in others.caption


def test_text_of_a_trainer_stays_text(study: StudyFacts) -> None:
    bad = "<script>alert(1)</script>"
    page = render(study, commands={case.summary.case: bad for case in study.cases})
    assert bad not in page
    assert "&lt;script&gt;alert(1)" in page


def test_a_best_whose_samples_are_too_uncertain_to_be_told_has_a_report(study: StudyFacts) -> None:
    first, *rest = study.cases
    assert first.summary.best
    assert first.summary.best.vs_default
    best = replace(first.summary.best, samples_per_s=None)
    cases = (replace(first, summary=replace(first.summary, best=best)), *rest)
    assert first.summary.case in render(replace(study, cases=cases), commands={})


def test_a_study_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(EmptyStoreError, match="no study 'nowhere'"):
        gather(StudyReader(connect(f"sqlite:///{folder}/study.db"), "nowhere"), folder)
