"""`tuner optimize --launcher slurm`: bad input everywhere, and real jobs where SLURM can be started."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests_cli import Tuner, study_file
from tests_filled import filled
from tests_postgresql import private_server
from tests_slurm import cancel, private_slurm, queued

from tuner.cli.slurm import RunInJob

END_S = 120.0
PACKAGE = str(Path(sys.modules["tuner"].__file__ or "").parent)
PASSWORD = "-".join(("open", "sesame"))
"""The private server asks for none, so a password in the URL changes nothing."""


def titles() -> list[str]:
    """Return the command lines of all processes, as `ps` shows them to every user."""
    return [" ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"])]


@pytest.fixture(scope="module")
def slurm() -> Iterator[Path]:
    with private_slurm() as config, pytest.MonkeyPatch.context() as here:
        here.setenv("SLURM_CONF", str(config))
        yield config


def until_empty(config: Path) -> None:
    end_s = time.monotonic() + END_S
    while jobs := queued(config):
        assert time.monotonic() < end_s, jobs
        time.sleep(0.5)


def test_without_slurm_the_message_says_where_to_go(
    tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = tuner("optimize", "--study", study_file(tmp_path), "--launcher", "slurm")
    assert (code, err) == (
        2,
        "tuner: there is no SLURM here: `sbatch` is not found; submit from a login node of the cluster\n",
    )


def test_a_typed_command_is_not_watched_on_a_login_node(tuner: Tuner, tmp_path: Path) -> None:
    code, out, err = tuner(
        "optimize", "--launcher", "slurm", "--runs", tmp_path / "runs", "--", "touch", tmp_path / "ran"
    )
    assert (code, out, "tuner init -- COMMAND" in err) == (2, "", True)
    assert not list(tmp_path.iterdir())


def test_a_file_that_other_nodes_may_not_reach_is_refused_before_anything_is_submitted(
    tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sinfo` counts three nodes in two lines, one for each state."""
    (tmp_path / "bin").mkdir()
    for name, lines in (("sinfo", "echo 1; echo 2"), ("sbatch", f"touch {tmp_path}/submitted")):
        (program := tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{lines}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=":")
    for server, why in (
        (None, "tuner: jobs may run on 3 nodes, and only this host safely reaches "),
        (f"postgresql+psycopg://me:{PASSWORD}@localhost/study", "tuner: jobs may run on 3 nodes, and only this host "),
        (f"mysql+pymysql://me:{PASSWORD}@far/study", "tuner: mysql+pymysql://me:***@far/study: the tuner does not"),
    ):
        storage = ["--storage", server] if server else []
        code, out, err = tuner(
            "optimize", "--study", study_file(tmp_path), "--launcher", "slurm", "--workers", 2, *storage
        )
        assert (code, out) == (2, "")
        assert err.startswith(why)
        assert PASSWORD not in err
    (tmp_path / "bin/sinfo").write_text("#!/bin/sh\necho no controller >&2; exit 1\n")
    answer = tuner("optimize", "--study", study_file(tmp_path), "--launcher", "slurm")
    assert answer == (2, "", "tuner: sinfo failed: no controller; see `scontrol ping`\n")
    assert not (tmp_path / "submitted").exists()


def test_a_training_is_printed_as_a_batch_script(tuner: Tuner, tmp_path: Path) -> None:
    study = study_file(tmp_path, slurm={"gpus": 8, "cpus_per_task": 32, "setup": ["module load cuda"]})
    code, out, _ = tuner("plan", "--study", study, "--launcher", "slurm")
    assert code == 0
    assert out.startswith("#!/bin/bash\n#SBATCH --job-name=demo\n")
    assert "#SBATCH --ntasks=1\n#SBATCH --gres=gpu:8\n#SBATCH --cpus-per-task=32\n" in out
    assert "\nmodule load cuda\n" in out
    assert subprocess.run(["/bin/bash", "-n"], input=out, text=True, check=False).returncode == 0


def test_a_job_has_a_core_for_each_rank_and_each_worker_of_a_loader(
    tuner: Tuner, tmp_path: Path, empty_file: Path
) -> None:
    """Without the option, SLURM gives the ranks and their workers a single core."""
    command = {"name": "command", "options": {"command": "train {num_envs} {num_workers}", "cases": ["walk"]}}
    space = {"num_envs": {"ladder": [8]}, "num_workers": {"choices": [3, 5]}}

    def asked(*options: str, **slurm: int) -> list[str]:
        study = study_file(tmp_path, trainer=command, devices="auto", space=space, slurm={"gpus": 4, **slurm})
        code, out, _ = tuner("plan", "--study", study, "--launcher", "slurm", *options)
        assert code == 0
        return [line.partition("=")[2] for line in out.splitlines() if line.startswith("#SBATCH --cpus-per-task")]

    assert (asked(), asked("--set", "num_workers=5"), asked(cpus_per_task=7)) == (["16"], ["24"], ["7"])
    with filled(f"sqlite:///{shutil.copy(empty_file, tmp_path / 'study.db')}") as database:
        best, host = {"num_envs": 8, "num_workers": 5}, {"cores": "18"}
        database.add(database.case("walk", study="demo"), best, utils=(61.0, 63.0), host=host)
        assert asked("--best", "--storage", database.url) == ["18"]  # a node that has no more ran the best
    del space["num_workers"]
    command["options"] = {"command": "train {num_envs}", "cases": ["walk"]}
    assert asked() == []


def test_a_training_over_nodes_is_started_on_each_of_them(tuner: Tuner, tmp_path: Path) -> None:
    command = (
        "torchrun --nnodes {nodes} --nproc-per-node {local_ranks} --rdzv-endpoint {head}:{port} a.py {num_envs} {ranks}"
    )
    trainer = {"name": "command", "options": {"command": f"{command} {{node_rank}} {{devices}}", "cases": ["walk"]}}
    study = study_file(tmp_path, trainer=trainer, devices="auto", slurm={"nodes": 2, "gpus": 4})
    code, out, _ = tuner("plan", "--study", study, "--launcher", "slurm")
    assert code == 0
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:4\n" in out
    (line,) = [line for line in out.splitlines() if line.startswith("srun ")]
    (tmp_path / "srun").write_text('#!/bin/sh\nshift 2; for node in 0 1; do SLURM_NODEID=$node "$@"; done\n')
    (tmp_path / "torchrun").write_text('#!/bin/sh\necho "$@"\n')
    for name in ("srun", "torchrun"):
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TUNER_HEAD": "gpu1"}
    done = subprocess.run(["/bin/bash", "-c", line], env=environment, capture_output=True, text=True, check=True)
    started = [re.sub(r"gpu1:\d+", "gpu1:PORT", text) for text in done.stdout.splitlines()]
    cards = "cuda:0,cuda:1,cuda:2,cuda:3"
    begin = "--nnodes 2 --nproc-per-node 4 --rdzv-endpoint gpu1:PORT a.py 16 8"
    assert started == [f"{begin} 0 {cards}", f"{begin} 1 {cards}"]


PLACED = {
    "trainer": {
        "name": "command",
        "options": {
            "command": "torchrun --nnodes {nodes} --nproc-per-node {local_ranks} --rdzv-endpoint {head}:{port} a.py "
            "{num_envs}",
            "cases": ["walk"],
        },
    },
    "devices": "auto",
    "space": {"num_envs": {"ladder": [16]}, "nodes": {"choices": [2, 1]}},
    "slurm": {"nodes": 2, "gpus": 8},
}


def test_a_job_has_no_more_nodes_and_cards_than_the_placement_of_its_config_needs(tuner: Tuner, tmp_path: Path) -> None:
    study = study_file(tmp_path, **PLACED)
    code, out, _ = tuner("plan", "--study", study, "--launcher", "slurm")
    assert code == 0
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:4\n" in out
    assert "srun --nodes=2 " in out
    assert "--nnodes 2 --nproc-per-node 4" in out
    code, out, _ = tuner("plan", "--study", study, "--launcher", "slurm", "--set", "nodes=1")
    assert "#SBATCH --nodes=1\n#SBATCH --ntasks=1\n#SBATCH --gres=gpu:8\n" in out
    assert " torchrun --nnodes 1 --nproc-per-node 8 --rdzv-endpoint localhost:" in out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"slurm": {"nodes": 1, "gpus": 8}}, "space.nodes: 2, and slurm.nodes is 1"),
        ({"space": {"num_envs": {"ladder": [16]}, "nodes": {"choices": [0.5, 1]}}}, "space.nodes: 0.5"),
        ({"slurm": {"nodes": 2, "gpus": 3}}, "2 nodes cannot share 3 devices evenly"),
    ],
)
def test_a_placement_that_cannot_be_is_refused(
    tuner: Tuner, tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    code, out, err = tuner("plan", "--study", study_file(tmp_path, **PLACED | changes), "--launcher", "slurm")
    assert (code, out) == (2, "")
    assert said in err


def test_a_command_that_names_no_nodes_is_refused_on_several(tuner: Tuner, tmp_path: Path) -> None:
    study = study_file(tmp_path, slurm={"nodes": 2})
    code, out, err = tuner("plan", "--study", study, "--launcher", "slurm")
    assert (code, out) == (2, "")
    assert "slurm.nodes is 2" in err
    assert "--nnodes {nodes}" in err


def test_a_job_for_a_best_that_is_not_there_prints_no_part_of_a_script(tuner: Tuner, tmp_path: Path) -> None:
    study = study_file(tmp_path, slurm={"gpus": 8})
    code, out, err = tuner("plan", "--study", study, "--best", "--launcher", "slurm")
    assert (code, out) == (2, "")
    assert "tuner optimize" in err


def test_the_devices_of_a_job_do_not_depend_on_the_machine_that_plans_it(tuner: Tuner, tmp_path: Path) -> None:
    """This machine has no driver, as a login node."""
    trainer = {"name": "command", "options": {"command": "train {num_envs} --devices {devices}", "cases": ["walk"]}}
    study = study_file(tmp_path, trainer=trainer, devices="auto", slurm={"gpus": 4})
    code, out, _ = tuner("plan", "--study", study, "--launcher", "slurm")
    assert (code, "--gres=gpu:4" in out, "cpu" in out, "cuda:0" in out, "cuda:3" in out) == (0, True, False, True, True)
    assert tuner("plan", "--study", study, "--launcher", "slurm", "--devices", "six")[0] == 2
    code, out, _ = tuner("plan", "--study", study, "--launcher", "slurm", "--devices", "6,7")
    assert (code, "cuda:1" in out, "cuda:2" in out) == (0, True, False)


def test_an_error_of_a_command_in_a_job_is_one_line_and_needs_no_answer_of_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho busy >&2; exit 1\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}", prepend=":")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(sys, "argv", [])
    before = signal.getsignal(signal.SIGUSR2)
    with pytest.raises(SystemExit) as ended:
        RunInJob(["worker", "--study", str(tmp_path / "none.yaml")], requeue=True)()
    signal.signal(signal.SIGUSR2, before)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err.startswith("tuner: "), err.count("tuner:"), "Traceback" in err) == ("", True, 1, False)


def test_the_log_of_a_job_says_that_its_limit_of_time_has_stopped_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tuner.cli.main.main", lambda: signal.raise_signal(signal.SIGUSR2))
    monkeypatch.setattr(sys, "argv", [])
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGUSR2)}
    RunInJob(["worker"], requeue=False)()
    for number, handler in before.items():
        signal.signal(number, handler)
    assert "slurm.time_min" in capsys.readouterr().out


def test_a_scaling_is_submitted_as_one_job(tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submission = pytest.importorskip("submitit.core.utils").DelayedSubmission
    (tmp_path / "bin").mkdir()
    for name in ("sbatch", "srun"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\necho Submitted batch job 7\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=":")
    study = study_file(tmp_path, slurm={"nodes": 2, "gpus": 4}, devices="auto")
    code, out, err = tuner("scale", "--study", study, "--launcher", "slurm", "--counts", "1,8")
    assert (code, err) == (0, "")
    assert "submitted job 7" in out
    (kept,) = (tmp_path / "runs/demo/slurm").glob("7_submitted.pkl")
    words = submission.load(kept).function.words
    assert words[:3] == ["scale", "--study", str(study)]
    assert words[words.index("--counts") + 1] == "1,8"


def test_a_scaling_without_a_study_is_not_submitted(tuner: Tuner, tmp_path: Path) -> None:
    code, out, err = tuner("scale", "--launcher", "slurm")
    assert (code, out) == (2, "")
    assert "--study" in err


def test_what_has_no_probe_is_foretold_by_its_command_or_the_reason_is_its_last_line(
    tuner: Tuner, tmp_path: Path
) -> None:
    (tmp_path / "short.py").write_text("import sys\nprint('loading')\nsys.exit('no corpus here')")
    command = [sys.executable, str(tmp_path / "short.py"), "{num_envs}"]
    trainer = {"name": "command", "options": {"command": command, "cases": ["walk"]}}
    study = study_file(tmp_path, trainer=trainer, devices="auto", slurm={"gpus": 1})
    code, out, err = tuner("plan", "--study", study, "--launcher", "slurm", "--predict")
    assert code == 0, err
    assert "no probe has run" in " ".join(out.replace("#", "").split())
    assert "no corpus here" in " ".join(out.replace("#", "").split())


@pytest.mark.parametrize("command", ["plan", "optimize"])
def test_without_a_number_of_gpus_no_job_is_planned(
    tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sbatch").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    code, out, err = tuner(command, "--study", study_file(tmp_path, devices="auto"), "--launcher", "slurm")
    assert (code, out) == (2, "")
    assert "slurm: {gpus:" in err


@pytest.mark.slurm
def test_jobs_share_a_study_and_a_cancelled_one_is_taken_back(tuner: Tuner, tmp_path: Path, slurm: Path) -> None:
    with private_server() as server, pytest.MonkeyPatch.context() as here:
        here.setenv("TUNER_STORAGE", url := server.url.replace("tuner@", f"tuner:{PASSWORD}@"))
        study = study_file(
            tmp_path,
            devices="cpu:1",
            space={"num_envs": {"ladder": [2, 4, 6, 8, 10, 12]}},
            probe={"iterations": 4, "window_seconds": 3},
            search={"sampler": "random"},
            pruner={"name": "none"},
            slurm={"time_min": 5},
        )
        trainer = tmp_path / "train.py"
        trainer.write_text(trainer.read_text().replace("range(60)", "range(600)"))
        code, out, err = tuner("optimize", "--study", study, "--launcher", "slurm", "--workers", 2)
        assert (code, err) == (0, "")
        first, second = re.findall(r"job (\d+), (\d+);", out)[0]
        log = tmp_path / f"runs/demo/slurm/{first}_0_log.out"
        while not (log.exists() and "#" in log.read_text()):
            assert first in queued(slurm)
            assert not [line for line in titles() if PASSWORD in line]
            time.sleep(0.2)
        cancel(slurm, first)
        until_empty(slurm)
        text = (tmp_path / f"runs/demo/slurm/{second}_0_log.out").read_text()
        assert "target" in text or "left" in text
        code, out, _ = tuner("status", "--study", study)
        assert "6 ok" in out, out
        assert "running" not in out
        said = [text.encode(), out.encode(), *(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())]
        assert not [one for one in said if url.encode() in one or PASSWORD.encode() in one]


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"partition": "nowhere"}, "invalid partition"),
        ({"gpus": 64}, "Invalid generic resource|Requested node configuration is not available"),
    ],
)
def test_a_job_that_slurm_refuses_leaves_nothing_queued(
    tuner: Tuner, tmp_path: Path, slurm: Path, asked: dict[str, object], said: str
) -> None:
    study = study_file(tmp_path, slurm=asked)
    code, _, err = tuner("optimize", "--study", study, "--launcher", "slurm", "--workers", 2)
    assert code == 2
    assert re.search(said, err)
    assert "change `slurm` in the study file" in err or "sinfo" in err
    assert not queued(slurm)


TRAINED_ON_NODES = """
import sys
from progress import report
envs, node = int(sys.argv[1]), int(sys.argv[2])
for iteration in range(600):
    sum(range(1_000_000))  # a device that does nothing fails the probe
    report(iteration=iteration, rank=node, samples=envs * (iteration + 1))
"""


@pytest.mark.slurm
def test_one_job_of_two_nodes_serves_all_probes_of_a_study_and_goes_on_after_its_preemption(
    tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both nodes are this machine, so they reach its server; `sinfo` counts one."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sinfo").write_text("#!/bin/sh\necho 1\n")
    (tmp_path / "bin/sinfo").chmod(0o755)
    with private_slurm(nodes=2) as config, private_server() as server:
        monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=":")
        monkeypatch.setenv("SLURM_CONF", str(config))
        monkeypatch.setenv("TUNER_STORAGE", server.url)
        command = f"{{python}} {tmp_path}/two.py {{num_envs}} {{node_rank}}"
        rungs = list(range(2, 22, 2))
        study = study_file(
            tmp_path,
            trainer={"name": "command", "options": {"command": command, "env": {"PYTHONPATH": PACKAGE}}},
            cases=["command"],
            devices="cpu:1",
            objective="samples_per_s",
            space={"num_envs": {"ladder": rungs}},
            probe={"iterations": 4, "window_seconds": 1},
            search={"sampler": "random"},
            pruner={"name": "none"},
            slurm={"nodes": 2, "time_min": 10, "requeue": True},
        )
        (tmp_path / "two.py").write_text(TRAINED_ON_NODES)
        code, out, err = tuner("optimize", "--study", study, "--launcher", "slurm")
        assert (code, err) == (0, "")
        (job,) = re.findall(r"job (\d+);", out)
        end_s = time.monotonic() + END_S
        while not (third := tmp_path / "runs/demo/probes/command/0002/node-1").is_dir():
            assert time.monotonic() < end_s, third
            time.sleep(0.1)
        urgent = ["sbatch", "--partition=urgent", "--nodes=2", f"--output={tmp_path}/urgent"]
        subprocess.run([*urgent, "--wrap=ps -eo args"], cwd=tmp_path, capture_output=True, check=True)
        until_empty(config)
        assert "slurmd" in (beside := (tmp_path / "urgent").read_text())
        assert "two.py" not in beside
        assert "tuner.nodes" not in beside
        log = (tmp_path / f"runs/demo/slurm/{job}_0_log.out").read_text()
        assert "DUE TO PREEMPTION" in log
        told = re.findall(r"num_envs=(\d+): (\w+)", log)
        assert sorted(int(size) for size, what in told if what == "ok") == rungs, log
        assert [what for _, what in told[:4]] == ["ok", "ok", "interrupted", "ok"]
        assert told[3][0] == told[2][0], "the trial is repeated"
        code, out, _ = tuner("status", "--study", study)
        assert "10 ok" in out
        assert "running" not in out
