"""The reference trainer's command line: which settings it comes to, and which arguments it refuses."""

from pathlib import Path

import pytest

from tuner.probe.probe_plan import Device, Slot
from tuner.study.cases import Case
from tuner.study.space import Config
from tuner.study.spec import ProbeSpec, TrainerSpec
from tuner.trainers.reference.__main__ import settings_from
from tuner.trainers.reference.launch_settings import run_config
from tuner.trainers.reference.reference_trainer import ReferenceTrainer

GIVEN = ["--case", "amp_pi_plus", "--master-port", "29500", "--out-dir", "out"]


def test_the_trainer_accepts_the_adapter_s_plans(tmp_path: Path) -> None:
    devices = (Device(name="cpu:0", model="cpu"), Device(name="cpu:1", model="cpu"))
    slot = Slot(devices=devices, out_dir=tmp_path, port=29500, limits=ProbeSpec())
    config: Config = {"num_envs": 96, "batch_size": 2, "num_workers": 2, "prefetch_factor": 4}
    plan = ReferenceTrainer(TrainerSpec(name="reference")).plan(Case(name="add_pi_plus"), config, slot)
    team, chosen, _, out_dir = settings_from(list(plan.argv[3:]))
    assert (team.method, team.devices, team.num_envs) == ("add", ("cpu", "cpu"), 96)
    assert team.hidden_units == 64
    assert chosen == run_config(config)
    assert out_dir == tmp_path / "train"


def test_what_is_left_out_follows_from_the_device_and_the_workers() -> None:
    team, chosen, _, _ = settings_from([*GIVEN, "--devices", "cuda:0", "cuda:1", "--num-workers", "2"])
    assert (team.hidden_units, chosen.ahead) == (1024, 2)
    team, chosen, _, _ = settings_from(GIVEN)
    assert (team.hidden_units, chosen.ahead) == (64, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prefetch-factor", "4"], "prefetch_factor 4 needs num_workers of at least 1"),
        (["--num-envs", "0"], "'0' is no whole number of at least 1"),
        (["--num-workers", "two"], "num_workers 'two': Input should be a valid integer"),
        (["--devices", "gpu"], "'gpu' is neither cpu nor cuda:N"),
        (["--devices", "cuda:0", "cuda:0"], "give distinct GPUs"),
        (["--devices", "cuda:0", "cpu"], "give distinct GPUs"),
        (["--case", "ase_pi_plus"], "invalid choice: 'ase_pi_plus'"),
    ],
)
def test_a_wrong_argument_is_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        settings_from([*GIVEN, *arguments])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
