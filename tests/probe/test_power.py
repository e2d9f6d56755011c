"""Power limits: set while a command runs, then restored, also after a guard was killed; refused where they must be."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pynvml
import pytest
from tests_cli import study_file
from tests_devices import FakeGpu, FakeNvml

from tuner.devices.found import AbsentDevices, launch_variables
from tuner.devices.nvml import Nvml
from tuner.devices.power import check_power
from tuner.errors import StudyError
from tuner.probe.guard import POWER, PowerLimits
from tuner.probe.probe_plan import AMD, Device
from tuner.study import load

NO_PERMISSION = 4
"""NVML_ERROR_NO_PERMISSION."""


def driver(limits: Path, refuses: Callable[[int], bool] = lambda _: False) -> Any:
    """Return a fake of NVML's C library, whose limits in mW are in a file: uuid → limit."""

    def get(card: Any, answer: Any) -> int:
        answer._obj.value = json.loads(limits.read_text())[card.value]
        return 0

    def put(card: Any, limit_mw: Any) -> int:
        if refuses(limit_mw.value):
            return NO_PERMISSION
        limits.write_text(json.dumps(json.loads(limits.read_text()) | {card.value: limit_mw.value}))
        return 0

    def handle(uuid: bytes, answer: Any) -> int:
        answer._obj.value = list(json.loads(limits.read_text())).index(uuid.decode()) + 1
        return 0

    class Card:
        """A handle as a number, so that a pointer can hold it."""

    def named(card: Any) -> Any:
        found = Card()
        found.value = list(json.loads(limits.read_text()))[card.value - 1]  # pyright: ignore[reportAttributeAccessIssue]
        return found

    class Library:
        nvmlInit_v2 = staticmethod(lambda: 0)  # noqa: N815 - NVML's own names
        nvmlDeviceGetHandleByUUID = staticmethod(handle)  # noqa: N815
        nvmlDeviceGetPowerManagementLimit = staticmethod(lambda card, answer: get(named(card), answer))  # noqa: N815
        nvmlDeviceSetPowerManagementLimit = staticmethod(lambda card, limit: put(named(card), limit))  # noqa: N815

        @staticmethod
        def nvmlErrorString(status: int) -> bytes:  # noqa: N802
            return b"Insufficient Permissions"

    return lambda _: Library


@pytest.fixture
def limits(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    path = tmp_path / "limits.json"
    path.write_text(json.dumps({"GPU-a": 700_000, "GPU-b": 650_000}))
    return path


def shown(limits: Path) -> list[int]:
    return list(json.loads(limits.read_text()).values())


def notes(limits: Path) -> list[str]:
    return sorted(path.name for path in (limits.parent / "run").iterdir())


def test_cards_have_the_limit_until_it_is_restored(limits: Path) -> None:
    power = PowerLimits(str(limits.parent / "run"), driver(limits))
    power.set(["GPU-a", "GPU-b"], 300.0)
    assert (shown(limits), notes(limits)) == ([300_000] * 2, ["tuner-power-GPU-a", "tuner-power-GPU-b"])
    PowerLimits(str(limits.parent / "run"), driver(limits)).restore_after_kills()  # this process, their guard, runs
    assert shown(limits) == [300_000] * 2
    with pytest.raises(OSError, match="GPU-a"):
        PowerLimits(str(limits.parent / "run"), driver(limits)).set(["GPU-a"], 400.0)
    power.restore()
    assert (shown(limits), notes(limits)) == ([700_000, 650_000], [])


def test_a_card_that_refuses_is_named_with_the_reason_and_the_others_are_restored(limits: Path) -> None:
    power = PowerLimits(str(limits.parent / "run"), driver(limits, lambda limit_mw: limit_mw == 300_000))
    with pytest.raises(OSError, match=r"Insufficient Permissions.*GPU-a"):
        power.set(["GPU-a", "GPU-b"], 300.0)
    power.restore()
    assert (shown(limits), notes(limits)) == ([700_000, 650_000], [])


def test_what_a_killed_guard_has_left_is_restored_by_the_next(limits: Path) -> None:
    text = (
        "import sys; sys.path += sys.argv[2:]; from pathlib import Path; from test_power import PowerLimits, driver\n"
        "limits = Path(sys.argv[1]); PowerLimits(str(limits.parent / 'run'), driver(limits)).set(['GPU-b'], 300.0)\n"
        "print('set', flush=True); sys.stdin.read()"
    )
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]
    words = [sys.executable, "-c", text, str(limits), *folders]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "set\n"
        assert shown(limits) == [700_000, 300_000]
        killed.kill()
    PowerLimits(str(limits.parent / "run"), driver(limits)).restore_after_kills()
    assert (shown(limits), notes(limits)) == ([700_000, 650_000], [])


CARD = Device(name="cuda:0", model="NVIDIA H100", uuid="GPU-a")


@pytest.mark.parametrize(
    ("device", "error", "watts", "why"),
    [
        (CARD, None, 300, None),
        (CARD, pynvml.NVML_ERROR_NO_PERMISSION, 300, "NVML error 4"),
        (CARD, None, 900, "200 to 700 W, not 900"),
        (Device(name="cuda:0", model="MI300X", uuid="GPU-a", maker=AMD), None, 300, "only NVIDIA"),
        (Device(name="cpu:0", model="a CPU"), None, 300, "only NVIDIA"),
    ],
)
def test_a_limit_that_cannot_be_set_is_refused_with_the_reason(
    tmp_path: Path, device: Device, error: int | None, watts: float, why: str | None
) -> None:
    spec = load(str(study_file(tmp_path, environment={"power_limit_w": watts})))
    card = FakeGpu(uuid="GPU-a", errors={"nvmlDeviceSetPowerManagementLimit": error} if error else {})
    connect = partial(Nvml, FakeNvml(card))
    if why is None:
        check_power(spec, [device], connect)
        assert card.power_limit_w == 700.0
        return
    with pytest.raises(StudyError, match=why):
        check_power(spec, [device], connect)


def test_without_the_key_nothing_is_asked_or_set(tmp_path: Path) -> None:
    check_power(load(str(study_file(tmp_path))), [Device(name="cpu:0", model="a CPU")])
    assert POWER not in launch_variables(load(str(study_file(tmp_path))), AbsentDevices((CARD,), "nvml"))


def test_the_guard_gets_the_limit_of_a_study(tmp_path: Path) -> None:
    spec = load(str(study_file(tmp_path, environment={"power_limit_w": 300})))
    assert launch_variables(spec, AbsentDevices((CARD,), "nvml"))[POWER] == "300"


def test_the_cards_of_other_nodes_are_left_to_their_guards(tmp_path: Path) -> None:
    spec = load(str(study_file(tmp_path, environment={"power_limit_w": 900})))
    elsewhere = replace(CARD, uuid="GPU-b")
    check_power(spec, [elsewhere], partial(Nvml, FakeNvml(FakeGpu(uuid="GPU-a"))))
    with pytest.raises(StudyError, match="not 900"):
        check_power(spec, [elsewhere, CARD], partial(Nvml, FakeNvml(FakeGpu(uuid="GPU-a"))))


def test_limits_that_a_command_varies_are_checked_too(tmp_path: Path) -> None:
    options = {"command": "train {num_envs}", "env": {POWER: "{power_limit_w}"}, "cases": ["walk"]}
    space = {"num_envs": {"ladder": [8]}, "power_limit_w": {"choices": [700, 100]}}
    spec = load(str(study_file(tmp_path, trainer={"name": "command", "options": options}, space=space)))
    with pytest.raises(StudyError, match="not 100"):
        check_power(spec, [CARD], partial(Nvml, FakeNvml(FakeGpu(uuid="GPU-a"))))
