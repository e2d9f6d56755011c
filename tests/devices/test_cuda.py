import uuid
from pathlib import Path
from typing import Any

import pytest

from tuner.devices.cuda import cuda_uuids, cuda_uuids_apart, visible_uuids
from tuner.errors import DeviceError

CARDS = ["GPU-1a11", "GPU-1b22", "GPU-2c33"]


class FakeCuda:
    """CUDA's driver library with these cards. With `status`, every call fails with that status."""

    def __init__(self, cards: list[uuid.UUID], status: int = 0) -> None:
        self._cards = cards
        self._status = status

    def cuInit(self, flags: int) -> int:  # noqa: N802  CUDA's name
        return self._status

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802  CUDA's name
        count._obj.value = len(self._cards)
        return 0

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:  # noqa: N802  CUDA's name
        device._obj.value = ordinal
        return 0

    def cuDeviceGetUuid_v2(self, identity: Any, device: Any) -> int:  # noqa: N802  CUDA's name
        identity[:] = list(self._cards[device.value].bytes)
        return 0


def no_library(name: str) -> Any:
    raise OSError(f"{name}: cannot open shared object file")


def test_cuda_lists_its_cards_in_its_own_order():
    cards = [uuid.UUID(int=7), uuid.UUID(int=3)]
    assert cuda_uuids(lambda name: FakeCuda(cards)) == [f"GPU-{card}" for card in cards]


def test_cuda_without_devices_lists_none():
    assert cuda_uuids(lambda name: FakeCuda([], status=100)) == []


@pytest.mark.parametrize("load", [no_library, lambda name: FakeCuda([], status=803)])
def test_a_cuda_that_is_missing_or_broken_does_not_answer(load: Any):
    assert cuda_uuids(load) is None


def test_a_separate_process_returns_the_same_answer():
    assert cuda_uuids_apart() == cuda_uuids()


def test_a_separate_process_that_fails_is_not_taken_for_cuda(tmp_path: Path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho first >&2\necho 'No module named tuner' >&2\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(DeviceError, match="code 3: No module named tuner"):
        cuda_uuids_apart(str(python))
    python.write_text("#!/bin/sh\nkill -SEGV $$\n")
    with pytest.raises(DeviceError, match=r"code -11: it printed nothing.*nvidia-smi"):
        cuda_uuids_apart(str(python))


def test_cuda_s_word_counts():
    assert visible_uuids(CARDS, lambda: ["GPU-2c33"]) == ["GPU-2c33"]
    assert visible_uuids(CARDS, list) == []


def test_a_file_with_the_name_of_a_module_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "uuid.py").write_text("raise SystemExit(print('[\"GPU-none\"]'))")
    monkeypatch.chdir(tmp_path)
    assert cuda_uuids_apart() != ["GPU-none"]


def test_where_cuda_does_not_answer_no_card_can_be_used():
    with pytest.raises(DeviceError, match=r"CUDA does not start, although the driver has 3 cards"):
        visible_uuids(CARDS, lambda: None)
