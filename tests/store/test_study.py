"""One case's study in SQLite: begun, resumed, refused."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.pruners import BasePruner
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from tests_space import USUAL
from tests_store import (
    CASE,
    CRASH,
    MANY,
    NAME,
    OUT_OF_MEMORY,
    RETRY,
    ask,
    case_study,
    identity,
    ok,
    opened,
    probe,
    repeats,
    states,
    stored,
    tell,
)

from tuner.errors import StoreError
from tuner.records.case_record import decode as decode_case
from tuner.records.schema import BEST_IS, ENDED, LEASE
from tuner.records.schema import CASE as KEPT_CASE
from tuner.records.trial import ProbeRecord
from tuner.search.trials import typed_trial
from tuner.search.verdict import Verdict
from tuner.store.case_study import CaseStudy
from tuner.store.database import Database
from tuner.store.opening import differences
from tuner.study.space import Config, Parameter, Space


@pytest.fixture
def study(database: Database) -> CaseStudy:
    return case_study(database)


@pytest.fixture
def other(url: str) -> Iterator[CaseStudy]:
    """The same study as another process opens it."""
    with opened(url) as database:
        yield case_study(database)


def test_rungs_are_fixed_by_whoever_comes_first(study: CaseStudy, other: CaseStudy) -> None:
    probe(study, ok(50.0), 2)

    def too_late(trials: Sequence[FrozenTrial]) -> tuple[int, ...]:
        raise AssertionError(f"asked again, after {len(trials)} trials")

    assert (study.attributes.rungs, other.attributes.rungs) == (None, None)
    assert study.fixed_rungs(lambda trials: (8, len(trials))) == (8, 2)
    assert other.fixed_rungs(too_late) == study.attributes.rungs == other.attributes.rungs == (8, 2)


def test_seeds_are_asked_first(study: CaseStudy) -> None:
    assert probe(study, ok(50.0), 4) == USUAL.start_configs(2)


def test_a_resumed_study_goes_on_where_it_was(url: str) -> None:
    asked: list[Config] = []
    for _ in range(3):
        with opened(url) as database:
            study = case_study(database)
            assert study.history().finished == len(asked)
            asked += probe(study, ok(50.0), 3)
    assert asked[:4] == USUAL.start_configs(2)
    assert not repeats(asked)


def test_a_study_ends_at_its_target(study: CaseStudy) -> None:
    while asked := study.ask(3):
        tell(study, asked, ok(50.0))
    assert study.history().finished == 3
    assert study.ask(3) is None
    assert study.ask(4) is not None


def test_running_trials_count_towards_the_target(study: CaseStudy, other: CaseStudy) -> None:
    ask(study)
    ask(other)
    assert (study.history().finished, study.history().running) == (0, 2)
    assert study.ask(2) is None
    assert other.ask(3) is not None


def test_several_questions_are_answered_from_one_reading(study: CaseStudy, other: CaseStudy) -> None:
    probe(other, ok(50.0))
    history = study.history()
    probe(other, ok(60.0))
    ask(other)
    assert (history.finished, history.running, len(history.complete)) == (1, 0, 1)
    later = study.history()
    assert (later.finished, later.running, len(later.complete)) == (2, 1, 2)


@pytest.mark.parametrize(("status", "attempt"), [("nccl", 2), ("interrupted", 1), ("port_in_use", 1)])
def test_a_retry_does_not_count_and_comes_next(study: CaseStudy, status: str, attempt: int) -> None:
    first = ask(study)
    tell(study, first, replace(RETRY, status=status))
    assert (study.history().finished, study.history().running) == (0, 0)
    again = ask(study, 1)
    assert (again.config, first.attempt, again.attempt) == (first.config, 1, attempt)
    tell(study, again, ok(50.0))
    assert study.history().finished == 1
    assert study.ask(1) is None


@pytest.mark.parametrize("verdict", [OUT_OF_MEMORY, CRASH, Verdict(state=TrialState.PRUNED, status="pruned"), ok(50.0)])
def test_every_other_end_counts(study: CaseStudy, verdict: Verdict) -> None:
    probe(study, verdict)
    assert study.history().finished == 1


def test_two_that_ask_in_turn_get_different_configs(study: CaseStudy, other: CaseStudy) -> None:
    configs = [ask(one).config for one in (study, other) * 6]
    assert not repeats(configs)


def test_an_exhausted_space_has_no_more_configs(database: Database) -> None:
    study = case_study(database, space=Space((Parameter(name="num_envs", values=(8, 16)),)))
    assert len(probe(study, ok(50.0), 2)) == 2
    assert study.ask(MANY) is None


def test_plain_optuna_finds_a_case_by_its_name_and_reads_which_value_is_the_best(database: Database, url: str) -> None:
    study = case_study(database, space=Space((Parameter(name="num_envs", values=(8, 16)),)))
    for value in (50.0, 60.0):
        probe(study, ok(value))
    plain = optuna.load_study(study_name="demo/amp_walk", storage=url)
    first = study.history().best(study.case.defaults)
    assert first is not None
    assert plain.best_value == first.value == 60.0
    assert not plain.user_attrs.get(BEST_IS)


def test_a_study_says_why_optunas_best_trial_is_another(database: Database, url: str) -> None:
    study = case_study(database, space=Space((Parameter(name="num_envs", values=(8, 16)),)))
    probe(study, ok(50.0))
    asked = ask(study)
    tell(study, asked, replace(ok(90.0), ineligible="headroom_pct is 2, below 5"))
    plain = optuna.load_study(study_name="demo/amp_walk", storage=url)
    assert plain.user_attrs[BEST_IS].startswith("trial 0, 50: the mean of 1 measurement")


def why_it_ended(database: Database) -> str | None:
    study_id = database.storage.get_study_id_from_name(NAME)
    return database.storage.get_study_user_attrs(study_id).get(ENDED)


def test_why_a_case_ended_is_kept_until_it_goes_on(database: Database) -> None:
    space = Space((Parameter(name="num_envs", values=(8, 16, 32)),))
    study = case_study(database, space=replace(space, holds=lambda config: config["num_envs"] != 32))
    assert (study.why_done(), why_it_ended(database)) == (None, None)
    probe(study, ok(50.0), 2)
    assert study.why_done() == why_it_ended(database) == "every config has been probed or cannot fit"
    ask(case_study(database, space=space))
    assert why_it_ended(database) is None


def test_a_case_has_not_ended_while_others_probe_or_where_the_end_is_not_to_be_kept(
    database: Database, url: str
) -> None:
    space = Space((Parameter(name="num_envs", values=(8, 16)),))
    study = case_study(database, space=space)
    probe(study, ok(50.0))
    with opened(url) as elsewhere:
        other = case_study(elsewhere, space=space)
        asked = ask(other)
        assert study.why_done() is not None
        assert why_it_ended(database) is None
        tell(other, asked, ok(50.0))
    assert study.why_done(keep=False) is not None
    assert why_it_ended(database) is None


def test_where_memory_ends_is_learnt_and_shared_with_other_workers(study: CaseStudy, other: CaseStudy) -> None:
    (largest,) = probe(study, OUT_OF_MEMORY)
    for one in (study, other):
        beyond = one.history().frontier.exceeded_failure(largest)
        assert beyond is not None
        assert beyond.violation == OUT_OF_MEMORY.constraint
    assert not [config for config in probe(other, ok(50.0), 8) if study.history().frontier.exceeded_failure(config)]


def test_the_incumbent_is_the_best_complete_value(study: CaseStudy) -> None:
    assert study.incumbent() is None
    for verdict in (ok(40.0), ok(61.5), OUT_OF_MEMORY, CRASH, ok(60.0)):
        probe(study, verdict)
    assert study.incumbent() == 61.5


def test_what_a_session_flattered_is_the_incumbent_only_until_it_is_confirmed(study: CaseStudy) -> None:
    asked = ask(study, 1)
    tell(study, asked, ok(60.0), warm=True)
    assert study.incumbent() == 60.0
    again = ask(study, 1)
    assert (again.config, again.confirms) == (asked.config, True)
    tell(study, again, ok(50.0))
    assert study.incumbent() == 50.0


def test_failures_that_no_config_is_to_blame_for_count_only_in_a_row(study: CaseStudy) -> None:
    counts = []
    slow = replace(TOO_SLOW, state=TrialState.FAIL, retry=True)
    for verdict in (CRASH, CRASH, ok(50.0), CRASH, OUT_OF_MEMORY, CRASH, CRASH, slow, CRASH):
        probe(study, verdict)
        counts.append(study.history().failing_streak)
    assert counts == [1, 2, 0, 1, 0, 1, 2, 0, 1]


class Below(BasePruner):
    """A pruner that stops probes with a value below 10, and remembers the steps."""

    def __init__(self) -> None:
        self.steps: list[int | None] = []

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        self.steps.append(trial.last_step)
        return trial.last_step is not None and trial.intermediate_values[trial.last_step] < 10


def test_reports_reach_the_pruner_and_the_database(database: Database) -> None:
    pruner = Below()
    study = case_study(database, pruner=pruner)
    asked = ask(study)
    assert [study.report(asked, step, value) for step, value in ((1, 50.0), (2, 11.0), (3, 9.0))] == [
        False,
        False,
        True,
    ]
    assert pruner.steps == [1, 2, 3]
    assert not any(study.report(asked, step, 5.0) for step in (2, 3))  # the window began anew
    assert pruner.steps == [1, 2, 3]
    tell(study, asked, Verdict(state=TrialState.PRUNED, status="pruned"))
    assert states(database) == {"PRUNED": 1}
    (trial,) = stored(database)
    assert trial.intermediate_values == {1: 50.0, 2: 11.0, 3: 9.0}


def test_records_and_the_case_are_kept_as_given(database: Database, study: CaseStudy) -> None:
    asked = ask(study)
    record = ProbeRecord(status="ok", metrics={"min_avg_util": 50.0}, config=asked.config, total_s=61.5)
    study.tell(asked, ok(50.0), record)
    (trial,) = stored(database)
    assert typed_trial(trial).probe == record
    assert (trial.value, trial.params) == (50.0, asked.config)
    (kept,) = database.storage.get_all_studies()
    assert decode_case(kept.user_attrs[KEPT_CASE]) == CASE


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"trainer": {"name": "mimickit"}},
            ["trainer.name: was 'command', is 'mimickit'", "trainer.command: was 'train'"],
        ),
        ({"pruner": {"patience": 4}}, ["pruner.patience: was 3, is 4"]),
        ({"objective": "samples_per_s"}, ["objective: was 'min_avg_util', is 'samples_per_s'"]),
        ({"source": "nvml"}, ["source: was None, is 'nvml'"]),
    ],
)
def test_other_settings_are_refused_with_what_changed(
    database: Database, study: CaseStudy, changes: dict[str, Any], words: list[str]
) -> None:
    probe(study, ok(50.0))
    with pytest.raises(StoreError) as refusal:
        case_study(database, known=identity(**changes))
    for word in (NAME, database.shown_url, *words, "another `name`"):
        assert word in str(refusal.value)
    assert "num_envs" not in str(refusal.value)
    assert case_study(database).history().finished == 1


def test_a_pruner_cannot_be_left_out_later(database: Database, study: CaseStudy) -> None:
    probe(study, ok(50.0))
    without = {name: setting for name, setting in identity().items() if name != "pruner"}
    with pytest.raises(StoreError, match=r"pruner: was \{'patience': 3\}, is None"):
        case_study(database, known=without)


def test_another_space_is_refused_with_what_changed(database: Database) -> None:
    probe(case_study(database), CRASH)
    ladder, *others = USUAL.parameters
    with pytest.raises(StoreError, match=r"space\.num_envs\.values: was \[8, 16, 32, 64\], is \[8, 16\]"):
        case_study(database, space=Space((replace(ladder, values=(8, 16)), *others)))
    with pytest.raises(StoreError, match=r"space\.batch_size\.when\.agent_variant: was \['hiutil'\], is None"):
        case_study(
            database, space=Space((*USUAL.parameters[:2], replace(USUAL.parameters[2], conditions=()), *others[2:]))
        )


TOO_SLOW = Verdict(state=TrialState.PRUNED, status="too_slow")
OTHER = {"trainer": {"name": "command", "command": "train --all"}, "source": "nvml"}


@pytest.mark.parametrize("verdict", [CRASH, RETRY, OUT_OF_MEMORY])
def test_a_study_that_has_measured_nothing_is_mended(database: Database, study: CaseStudy, verdict: Verdict) -> None:
    (first,) = probe(study, verdict)
    mended = case_study(database, known=identity(**OTHER))
    assert (mended.history().finished, mended.history().failing_streak) == (0, 0)
    assert mended.history().frontier.exceeded_failure(first) is None
    assert probe(mended, ok(50.0)) == [first]
    assert len(stored(database)) == 2
    assert (mended.history().finished, mended.incumbent()) == (1, 50.0)
    with pytest.raises(StoreError, match="was started with other settings"):
        case_study(database)


@pytest.mark.parametrize(
    ("limit", "earlier_s"),
    [("max_seconds", 100.0), ("max_start_seconds", 100.0), ("max_start_seconds", None)],  # None: of an earlier version
)
def test_what_was_too_slow_is_probed_again_once_a_time_limit_is_raised(
    database: Database, limit: str, earlier_s: float | None
) -> None:
    limits = (earlier_s, earlier_s, 1000.0, 950.0)  # raised once
    asked = [
        probe(case_study(database, case=replace(CASE, **{limit: seconds})), verdict)[0]
        for seconds, verdict in zip(limits, (TOO_SLOW, ok(50.0), TOO_SLOW, ok(50.0)), strict=True)
    ]
    assert (asked[2], repeats(asked)) == (asked[0], [asked[0]])


def test_environment_variables_must_stay_except_where_an_earlier_version_stored_none() -> None:
    now = {"objective": "util", "variables": {"OMP_NUM_THREADS": "1"}}
    assert list(differences({"objective": "util", "variables": {}}, now)) == [
        "  variables.OMP_NUM_THREADS: was None, is '1'"
    ]
    assert not list(differences({"objective": "util"}, now))


@pytest.mark.parametrize(
    ("stored", "now"),
    [
        ("train --token-dim *** --x 'a  b'", "train --token-dim 64 --x 'a  b'"),  # an earlier version masked more
        ("train --name sk-0a1b2c3d4e5f", "train --name ***"),  # an earlier version masked less
        ("train --log=wandb:sk-0a1b2c3d4e5f --token-dim ***", "train --log=wandb:*** --token-dim 64"),
    ],
)
def test_a_command_that_an_earlier_version_masked_otherwise_is_the_same(stored: str, now: str) -> None:
    assert not list(differences({"trainer": {"command": stored}}, {"trainer": {"command": now}}))
    (line,) = differences({"trainer": {"command": stored}}, {"trainer": {"command": f"{now} --more"}})
    assert "sk-0a1b2c3d4e5f" not in line


def test_a_variable_that_an_earlier_version_stored_with_its_key_is_refused_without_it() -> None:
    (line,) = differences({"variables": {"TRACKER": "wandb:sk-0a1b2c3d4e5f"}}, {"variables": {"TRACKER": "none"}})
    assert "TRACKER" in line
    assert "sk-0a1b2c3d4e5f" not in line


@pytest.mark.parametrize("earlier", ["--token-dim *** sk-{key}", "--token-dim *** ***", "--token-dim 64 sk-{key}"])
def test_a_study_resumes_whatever_an_earlier_version_took_for_a_key(earlier: str) -> None:
    earlier = f"python train.py {earlier}".replace("{key}", "abcdefgh12345678")
    now = {"trainer": {"command": "python train.py --token-dim 64 ***"}}
    assert not list(differences({"trainer": {"command": earlier}}, now))
    (line,) = differences({"trainer": {"command": earlier.replace("train.py", "other.py")}}, now)
    assert list(differences({"trainer": {"command": earlier.replace("--token-dim ", "")}}, now))
    assert "abcdefgh" not in line


def test_a_study_without_trials_takes_another_space(database: Database) -> None:
    case_study(database)
    ladder, *others = USUAL.parameters
    smaller = Space((replace(ladder, values=(8, 16)), *others))
    assert probe(case_study(database, space=smaller), ok(50.0)) == smaller.start_configs(1)[:1]


@pytest.mark.parametrize("verdict", [ok(50.0), Verdict(state=TrialState.PRUNED, status="pruned")])
def test_what_has_measured_something_is_not_mended(database: Database, study: CaseStudy, verdict: Verdict) -> None:
    probe(study, CRASH)
    probe(study, verdict)
    with pytest.raises(StoreError, match="was started with other settings"):
        case_study(database, known=identity(**OTHER))


def test_a_study_is_not_mended_while_a_trial_runs(database: Database, study: CaseStudy) -> None:
    asked = ask(study)
    with pytest.raises(StoreError, match="was started with other settings"):
        case_study(database, known=identity(**OTHER))
    tell(study, asked, CRASH)
    assert case_study(database, known=identity(**OTHER)).history().finished == 0


def test_a_worker_of_the_set_up_before_asks_no_more(database: Database, study: CaseStudy) -> None:
    case_study(database, known=identity(**OTHER))
    with pytest.raises(StoreError, match="was started with other settings"):
        ask(study)


def test_each_case_has_a_study_of_its_own(database: Database, study: CaseStudy) -> None:
    probe(study, ok(50.0), 3)
    second = case_study(database, name="demo/run", known=identity(objective="samples_per_s"))
    assert (second.history().finished, second.incumbent()) == (0, None)
    assert probe(second, ok(9.0)) == USUAL.start_configs(2)[:1]
    assert states(database) == {"COMPLETE": 3}


def test_a_sign_of_life_renews_the_lease_at_most_now_and_then(database: Database, study: CaseStudy) -> None:
    def lease() -> object:
        (trial,) = stored(database)
        return trial.user_attrs[LEASE]

    asked = ask(study)
    before = lease()
    study.renew_lease(asked)
    renewed = lease()
    assert renewed != before
    study.renew_lease(asked)
    assert lease() == renewed


def test_telling_a_trial_that_another_worker_took_back_is_a_store_error(
    database: Database, study: CaseStudy, tmp_path: Path
) -> None:
    asked = ask(study)
    (trial,) = stored(database)
    database.storage.set_trial_user_attr(trial._trial_id, LEASE, None)
    assert case_study(database).end_abandoned_trials(tmp_path) == (0, 1)
    with pytest.raises(StoreError, match="another worker ended this trial"):
        study.report(asked, 1, 50.0)
    with pytest.raises(StoreError, match="another worker ended this trial"):
        tell(study, asked, ok(50.0))
    assert states(database) == {"FAIL": 1}
