"""How long a training waits for a processor that other programs use."""

import os
from pathlib import Path

import pytest

from tuner.devices.cpu import Delays, ThreadTimes, thread_times


def test_the_longest_wait_counts_as_far_as_others_cause_it() -> None:
    threads = {7: {"7": ThreadTimes(0.0, 0.0), "8": ThreadTimes(5.0, 5.0)}, 9: {"9": ThreadTimes(0.0, 0.0)}}
    delays, owners = Delays(lambda pid: threads[pid]), {7: 7, 9: 9}
    assert delays.shares_pct(0.0, owners, trainer_s=0.0, others_s=1.0) == {}
    threads = {7: {"7": ThreadTimes(1.0, 1.0), "8": ThreadTimes(5.0, 6.0)}, 9: {"9": ThreadTimes(1.0, 0.5)}}
    assert delays.shares_pct(0.5, owners, trainer_s=1.5, others_s=0.5) == {}
    shares = delays.shares_pct(2.0, owners, trainer_s=0.5, others_s=0.5)
    assert shares == {7: pytest.approx(25.0), 9: pytest.approx(12.5)}  # the other rank causes half of it
    assert delays.shares_pct(2.5, owners, trainer_s=0.5, others_s=0.5) == shares


def test_what_a_rank_waited_before_it_was_known_does_not_count() -> None:
    delays = Delays(lambda pid: {"7": ThreadTimes(1.0, 8.0)})
    delays.shares_pct(0.0, {}, trainer_s=0.0, others_s=0.0)
    assert delays.shares_pct(2.0, {7: 7}, trainer_s=1.0, others_s=1.0) == {}
    assert delays.shares_pct(4.0, {7: 7}, trainer_s=1.0, others_s=1.0) == {7: 0.0}


@pytest.mark.parametrize(
    ("trainer_s", "others_s", "share"), [(1.0, 1.0, {7: 50.0}), (4.0, 0.0, {7: 0.0}), (1.0, None, {})]
)
def test_without_others_nobody_waits_for_them(
    trainer_s: float, others_s: float | None, share: dict[int, float]
) -> None:
    threads = {"7": ThreadTimes(0.0, 0.0)}
    delays = Delays(lambda pid: threads)
    delays.shares_pct(0.0, {7: 7}, trainer_s=0.0, others_s=0.0)
    threads = {"7": ThreadTimes(1.0, 1.0)}
    assert delays.shares_pct(2.0, {7: 7}, trainer_s=trainer_s, others_s=others_s) == share


def test_the_times_of_this_process_are_known_and_a_process_that_has_ended_has_none(tmp_path: Path) -> None:
    folder = tmp_path / "proc/7/task/7"
    folder.mkdir(parents=True)
    (folder / "schedstat").write_text("2000000000 500000000 12\n")
    assert thread_times(7, tmp_path) == {"7": ThreadTimes(2.0, 0.5)}
    assert thread_times(8, tmp_path) == {}
    assert thread_times(os.getpid())[str(os.getpid())].ran_s > 0.0
