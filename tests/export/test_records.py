from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tuner.export.records import CaseRecord, Tally, commonest_failure, finished, status_of, status_without_best
from tuner.kept.case import KeptCase
from tuner.study.space import Config

STATUSES = st.sampled_from([None, "ok", "pruned", "gpu_oom", "nccl", "hang"])
TALLIES = st.lists(st.builds(Tally, state=st.just("FAIL"), status=STATUSES, trials=st.integers(1, 5)))


@given(TALLIES, st.randoms())
def test_the_commonest_failure_has_most_trials_whatever_the_order(tallies: list[Tally], random) -> None:
    counts: Counter[str] = Counter()
    for tally in tallies:
        if tally.status not in (None, "ok", "pruned"):
            counts[tally.status or ""] += tally.trials
    found = commonest_failure(tallies)
    shuffled = random.sample(tallies, len(tallies))
    assert commonest_failure(shuffled) == found
    assert (found in counts) == bool(counts)
    assert counts[found or ""] == max(counts.values(), default=0)


def test_equally_common_failures_are_taken_by_name() -> None:
    tallies = [Tally(state="FAIL", status=kind, trials=2) for kind in ("nccl", "hang")]
    assert commonest_failure(tallies) == "hang"


def test_an_interruption_hides_no_failure() -> None:
    tallies = [Tally(state="FAIL", status=kind, trials=trials) for kind, trials in (("interrupted", 3), ("hang", 1))]
    assert (commonest_failure(tallies), commonest_failure(tallies[:1])) == ("hang", "interrupted")


def test_a_case_without_a_best_has_the_status_of_what_stood_in_the_way() -> None:
    failed, pruned, runs = (Tally(state="FAIL", status=status, trials=1) for status in ("hang", "pruned", None))
    assert status_without_best([pruned, failed, runs]) == "hang"
    assert status_without_best([pruned, runs]) == "pruned"
    assert status_without_best([runs]) == status_without_best([]) == "no_trials"


def test_trials_that_run_or_wait_are_not_finished() -> None:
    states = ("COMPLETE", "PRUNED", "FAIL", "RUNNING", "WAITING")
    assert finished(Tally(state=state, status=None, trials=1) for state in states) == 3


def test_a_finished_trial_without_a_record_was_interrupted() -> None:
    assert status_of("FAIL", None) == "interrupted"
    assert status_of("RUNNING", None) is None
    assert status_of("PRUNED", "gpu_oom") == "gpu_oom"


def test_what_changes_learning_is_what_differs_from_the_rung_s_default() -> None:
    default: Config = {"num_envs": 64, "agent_variant": "default", "num_workers": 0, "batch_size": 4}
    kept = KeptCase(defaults=(default,), learning=("agent_variant", "batch_size", "update_epochs"))
    case = CaseRecord(study_id=1, name="walk", kept=kept)
    hiutil = {"num_envs": 64, "agent_variant": "hiutil", "update_epochs": 20, "batch_size": 2, "num_workers": 4}
    assert case.changes_learning(hiutil) == ("agent_variant", "update_epochs", "batch_size")
    assert case.changes_learning({**default, "num_workers": 4}) == ()
    assert CaseRecord(study_id=1, name="walk").changes_learning(hiutil) == ()
