import pytest

from benchmarks.scripts.judged import Told, hints, is_right, off_pct, read_truth, reason, verdict


def side_file(*, speeds: tuple[int, ...], seconds: int = 20) -> str:
    """Return a side file of processes that were started by process 10, itself started by 7."""
    lines: list[str] = []
    for place, speed in enumerate(speeds):
        pid = 100 + place
        chain = ((pid, 4.5), (10, 3.0), (7, 1.0))
        lines += [f"5.0\t{pid}\tancestor\t{one}:{at_s}" for one, at_s in chain]
        lines += [f"{5 + t_s}\t{pid}\tsamples\t{speed * t_s}" for t_s in range(seconds + 1)]
    return "".join(f"{line}\n" for line in lines)


def test_the_true_speed_is_that_of_all_processes_between_two_moments() -> None:
    truth = read_truth(side_file(speeds=(10, 30)) + "26.0\t100\tsam")
    assert truth.rate(7.2, 16.8) == pytest.approx(40.0)
    assert (truth.first_s, truth.last_s) == (5.0, 25.0)
    with pytest.raises(ValueError, match="no step"):
        truth.rate(40.0, 50.0)


def test_a_long_update_after_the_last_step_counts_as_time_of_the_window() -> None:
    truth = read_truth(side_file(speeds=(10,)))
    assert truth.rate(20.0, 30.0) == pytest.approx(5.0)


def test_the_share_of_evaluations_is_that_of_the_time() -> None:
    truth = read_truth(side_file(speeds=(10,)) + "10.0\t100\tbegin\tevaluation\n12.0\t100\tend\tevaluation\n")
    assert truth.share_of_other(5.0, 25.0) == pytest.approx(0.1)


def test_a_told_speed_is_wrong_beyond_three_percent_and_two_errors() -> None:
    told = Told(value=1040.0, error=15.0, why="")
    assert off_pct(told, 1000.0) == pytest.approx(4.0)
    assert verdict(told, 1000.0) == "WRONG IN SILENCE"
    assert is_right(told, 1011.0)
    assert verdict(Told(value=1040.0, error=25.0, why=""), 1000.0) == "right"
    assert verdict(Told(value=64000.0, error=None, why=""), 1000.0, tokens=64) == "right, in tokens"


def test_a_large_error_does_not_make_a_speed_right() -> None:
    assert verdict(Told(value=1300.0, error=900.0, why=""), 1000.0).startswith("vague")
    assert verdict(Told(value=21663.3, error=22456.7, why=""), 14.6) == "WRONG IN SILENCE"
    assert verdict(Told(value=1010.0, error=900.0, why=""), 1000.0) == "right"


def test_an_unknown_speed_has_its_reason() -> None:
    shown = "samples_per_s: -\nto change: no samples were counted\nnext: search"
    told = Told(value=None, error=None, why=reason(shown))
    assert verdict(told, 1000.0) == "unknown: to change: no samples were counted"
    assert off_pct(told, 1000.0) is None


def test_of_several_hints_the_one_that_fits_is_followed() -> None:
    study = (
        "options:\n    # samples_per_iteration: '2'  # a batch\n    # samples_per_iteration: '3'  # a step\nspace: {}\n"
    )
    assert hints(study, "a step") == [study.replace("# samples_per_iteration: '3'", "samples_per_iteration: '3'")]
    assert hints(study, "an epoch") == []
    only = "    # samples_per_iteration: '2'\n"
    assert hints(only, "a step") == ["    samples_per_iteration: '2'\n"]


def test_the_speed_of_training_leaves_out_the_steps_with_an_evaluation() -> None:
    steps = "".join(f"{5 + t_s}\t100\tsamples\t{10 * min(t_s, 10) + 10 * max(0, t_s - 15)}\n" for t_s in range(11))
    later = "".join(f"{20 + t_s}\t100\tsamples\t{110 + 10 * t_s}\n" for t_s in range(6))
    truth = read_truth(f"{steps}15.5\t100\tbegin\tevaluation\n19.0\t100\tend\tevaluation\n{later}")
    assert truth.training_rate(5.0, 25.0) == pytest.approx(10.0)
