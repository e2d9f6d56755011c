"""Dividing a machine's devices among workers."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests_cli import study_file
from tests_devices import FakeGpu, FakeNvml

from tuner.cli import optimize
from tuner.cli.optimize import devices_of_workers
from tuner.devices.drivers import Nvml
from tuner.devices.found import open_devices
from tuner.errors import StudyError
from tuner.running.workers import device_groups


def test_a_machine_is_filled_with_disjoint_sets() -> None:
    for workers, per_trial, groups in [
        (None, 2, ["0,1", "2,3", "4,5", "6,7"]),
        (None, 3, ["0,1,2", "3,4,5"]),
        (4, None, ["0,1", "2,3", "4,5", "6,7"]),
        (2, 1, ["0", "1"]),
        (1, None, ["0,1,2,3,4,5,6,7"]),
    ]:
        assert device_groups("auto", 8, workers=workers, per_trial=per_trial) == groups


@pytest.mark.parametrize(
    ("devices", "asked", "groups"),
    [
        (2, {"workers": 2, "per_trial": None}, ["0,1", "2,3"]),
        (1, {"workers": 2, "per_trial": None}, ["0", "1"]),
        (2, {"workers": None, "per_trial": 1}, ["0", "1", "2", "3"]),
        (8, {"workers": 1, "per_trial": None}, ["0,1,2,3"]),
        ("auto", {"workers": 2, "per_trial": None}, ["0,1", "2,3"]),
    ],
)
def test_each_worker_gets_as_many_cards_as_the_study_wants(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    devices: int | str,
    asked: dict[str, Any],
    groups: list[str],
) -> None:
    cards = Nvml(FakeNvml(*(FakeGpu(uuid=f"GPU-{card}") for card in range(4))))
    monkeypatch.setattr(optimize, "open_devices", lambda asked: open_devices(asked, lambda: cards, list))
    study = str(study_file(tmp_path, devices=devices))
    assert devices_of_workers(study, "auto", replay=None, **asked) == groups


def test_only_the_cards_of_the_study_are_divided() -> None:
    assert device_groups("3,1,0,2", 4, workers=2, per_trial=None) == ["3,1", "0,2"]


@pytest.mark.parametrize(
    ("asked", "per_trial", "group"), [("auto", None, "cpu"), ("cpu:3", None, "cpu:3"), ("cpu", 2, "cpu:2")]
)
def test_cpu_ranks_are_not_divided(asked: str, per_trial: int | None, group: str) -> None:
    assert device_groups(asked, 0, workers=2, per_trial=per_trial) == [group, group]


def test_too_few_cards_are_refused() -> None:
    with pytest.raises(StudyError, match="per trial need 12 GPUs, and 8 are there"):
        device_groups("auto", 8, workers=3, per_trial=4)
    with pytest.raises(StudyError, match="--gpus-per-trial"):
        device_groups("auto", 2, workers=None, per_trial=4)


@given(available=st.integers(1, 16), workers=st.none() | st.integers(1, 16), per_trial=st.none() | st.integers(1, 16))
def test_no_card_belongs_to_two_workers(available: int, workers: int | None, per_trial: int | None) -> None:
    try:
        groups = device_groups("auto", available, workers=workers, per_trial=per_trial)
    except StudyError:
        assert (workers or 1) * (per_trial or 1) > available
        return
    cards = [card for group in groups for card in group.split(",")]
    assert len(set(cards)) == len(cards) <= available
    assert workers is None or len(groups) == workers
