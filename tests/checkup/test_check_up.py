from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests_cli import study_file
from tests_devices import FakeGpu, FakeNvml

from tuner.devices.drivers import Nvml
from tuner.study.spec import EnvironmentSpec
from tuner.study.study_file import load
from tuner.tools.checkup import Finding, Severity
from tuner.tools.checkup.checks import check_devices, check_up, opened_devices, unchecked


def findings(study: str, devices: str, folder: Path) -> Iterator[Finding]:
    url = f"sqlite:///{folder / 'study.db'}"
    return check_up(load(study), opened_devices(devices), requested=study, url=url, runs=folder)


def checked(study: str, devices: str, folder: Path) -> list[Finding]:
    return list(findings(study, devices, folder))


def subjects(found: list[Finding]) -> list[str]:
    return [finding.subject for finding in found]


def test_everything_is_looked_at_without_a_gpu(tmp_path: Path) -> None:
    found = checked(str(study_file(tmp_path)), "cpu:2", tmp_path)
    assert subjects(found)[:4] == ["devices", "machine", "objective", "trainer"]
    assert subjects(found)[4:9] == ["imports", "command", "parameters", "storage", "disk"]
    assert not [finding for finding in found if finding.level is Severity.PROBLEM]


def test_one_problem_does_not_hide_the_others(tmp_path: Path) -> None:
    study = str(study_file(tmp_path, cases=["fly"], objective="utilisation"))
    found = checked(study, "0,97", tmp_path)
    problems = [finding for finding in found if finding.level is Severity.PROBLEM]
    assert subjects(problems) == ["devices", "objective", "trainer"]
    assert "0,97" in problems[0].text
    assert "storage" in subjects(found)


def test_a_fallback_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MIMICKIT_ROOT", raising=False)
    first = next(findings("pi_plus", "cpu:2", tmp_path))  # the next ones load torch
    assert (first.subject, first.text) == ("study", "reference stands in for pi_plus, whose trainer.root is empty")


def test_cards_are_looked_at_one_by_one_and_in_pairs_and_cuda_is_asked_once() -> None:
    gpus = FakeGpu(uuid="GPU-a"), FakeGpu(uuid="GPU-b", processes={4711: 20_000}, mem_used_mib=20_600)
    nvml = Nvml(FakeNvml(*gpus, nvlinks={(0, 1)}))
    asked = list[Sequence[str]]()

    def cuda_order(uuids: Sequence[str]) -> Sequence[str]:
        asked.append(uuids)
        return uuids

    devices = opened_devices("auto", lambda: nvml, cuda_order)
    found = list(check_devices(devices, EnvironmentSpec(), lambda: nvml))
    assert any("tuner scale" in text for text in unchecked(devices, None, None))  # as there are two
    assert (asked, devices.has_gpus) == ([["GPU-a", "GPU-b"]], True)
    assert found[0].text.startswith("2 x NVIDIA Fake; driver 580.1")
    cards = ("cuda:0 (GPU-a)", "cuda:1 (GPU-b)")
    assert {f"{card} {what}" for card in cards for what in ("memory", "clocks")} <= set(subjects(found))
    assert [one.text for one in found if one.subject == "links"] == ["P2P over NVLink: every pair"]
    assert "NCCL" in subjects(found)
    problems = [one for one in found if one.level is Severity.PROBLEM]
    assert {one.subject for one in problems} == {f"{cards[1]} foreign process", f"{cards[1]} memory"}
