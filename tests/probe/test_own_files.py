"""What a probe writes over the person's own files: they are as they were, whatever happens to the tuner."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests_replays import scripted_plan

from tuner.errors import TrainerError
from tuner.probe.own_files import (
    Copies,
    ProtectionMeans,
    View,
    clean_up,
    folders_of,
    protected,
    temporary_folders,
    warning,
)
from tuner.probe.probe_plan import Device, MonotonicClock, ProbePlan
from tuner.probe.process import Process
from tuner.study.spec import ProbeSpec, TrainerSpec
from tuner.trainers.base import make_slot
from tuner.trainers.command import CommandTrainer

WORK = "three weeks of training"
SPOILS = """
import os, pathlib, sys, time
path = pathlib.Path
path("model.pt").write_text("weights of step 1")
path("old.pt").unlink()
os.replace("model.pt", "best.pt")
path("out").mkdir(exist_ok=True)
path("out/new.pt").write_text("a probe's own")
path("data/words").mkdir(parents=True)
path("data/words/a.txt").write_text("downloaded")
path(sys.argv[1], "log.txt").write_text("of the probe")
print("spoilt", os.getpid(), flush=True)
time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of a training with the person's own files, and the folder of a probe in it."""
    training = tmp_path / "training, of: me"
    (training / "runs/probe").mkdir(parents=True)
    for name in ("model.pt", "old.pt"):
        (training / name).write_text(WORK)
    (training / "train.py").write_text(SPOILS)
    return training


NO_VIEWS = ProtectionMeans(has_views=False)


def plan_of(folder: Path, wait_s: float = 0.0) -> ProbePlan:
    device = Device(name="cpu:0", model="x")
    plan = scripted_plan(folder / "runs/probe", [device], ProbeSpec())
    argv = (sys.executable, "train.py", str(folder / "runs/probe"), str(wait_s))
    return replace(plan, argv=argv, cwd=folder, protects_files=True)


def left(folder: Path) -> list[str]:
    own = (path for path in folder.rglob("*") if path.is_file())
    return sorted(str(path.relative_to(folder)) for path in own if path.name not in {"console.log", "train.py"})


def run(folder: Path) -> list[str]:
    process = Process(plan_of(folder), MonotonicClock())
    lines: list[str] = []
    while process.exit_code() is None:
        lines += [line.text for line in process.lines(0.1)]
    assert process.exit_code() == 0, lines
    return lines


def is_whole(folder: Path) -> bool:
    return all((folder / name).exists() and (folder / name).read_text() == WORK for name in ("model.pt", "old.pt"))


def test_a_probe_leaves_the_files_of_its_folder_as_they_were(folder: Path) -> None:
    run(folder)
    assert is_whole(folder)
    assert left(folder) == ["data/words/a.txt", "model.pt", "old.pt", "runs/probe/log.txt"]


def test_without_a_view_the_files_are_put_back(folder: Path) -> None:
    protection = protected([folder], folder / "runs/probe", NO_VIEWS)
    assert isinstance(protection, Copies)
    subprocess.run([*protection.prefix, *plan_of(folder).argv], cwd=folder, check=True)
    protection.close()
    assert is_whole(folder)
    assert (folder / "out/new.pt").exists()


def test_of_a_folder_runs_only_studies_are_not_put_back(folder: Path) -> None:
    """The training may have such a folder, too; a database that goes on must not become an older one."""
    files = [
        "nov28/best.pt",
        "new/init/console.log",
        "demo/study.db",
        "other/study.db",
        "pg/probes/walk/0/console.log",
        "all.db",
    ]
    for name in files:
        (file := folder / "runs" / name).parent.mkdir(parents=True, exist_ok=True)
        file.write_text(WORK)
    protection = protected([folder], folder / "runs/demo/probes/walk/0", NO_VIEWS)
    assert protection is not None
    for name in files:
        (folder / "runs" / name).write_text("later")
    protection.close()
    assert [name for name in files if (folder / "runs" / name).read_text() == WORK] == ["nov28/best.pt"]


@pytest.fixture
def store() -> Iterator[Path]:
    """A folder for temporary files, on a file system that may hold what is written in a view."""
    path = Path(tempfile.mkdtemp(prefix="tuner-test-", dir=temporary_folders()[0]))
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize("way", [View, Copies])
def test_nothing_is_left_of_a_view_or_of_copies(folder: Path, store: Path, way: Callable[..., View | Copies]) -> None:
    protection = way([folder], folder / "runs/probe", ProtectionMeans(temporary=(store,)))
    assert len(list(store.iterdir())) == 1
    protection.close()
    protection.close()
    assert list(store.iterdir()) == []


TUNER = """
import sys
sys.path[:0] = sys.argv[1:4]
from pathlib import Path
import test_own_files as own
plan = own.plan_of(Path(sys.argv[4]), 1000.0)
if sys.argv[5] == "copies":
    plan = own.replace(plan, protects_files=False)
    copies = own.protected([plan.cwd], plan.slot.out_dir, own.NO_VIEWS)
process = own.Process(plan, own.MonotonicClock())
while True:
    for line in process.lines(1.0):
        print(line.text, flush=True)
"""


@pytest.mark.parametrize("way", ["view", "copies"])
def test_kill_9_of_the_tuner_leaves_the_files_as_they_were(folder: Path, way: str) -> None:
    here = Path(__file__)
    paths = [str(here.parent), str(here.parents[1] / "support"), str(here.parents[2])]
    command = [sys.executable, "-c", TUNER, *paths, str(folder), way]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tuner:
        assert tuner.stdout is not None
        trainer = psutil.Process(int(tuner.stdout.readline().split()[1]))
        tuner.send_signal(signal.SIGKILL)
    until_s = time.monotonic() + 20.0
    while trainer.is_running() and time.monotonic() < until_s:
        time.sleep(0.05)
    clean_up(temporary_folders())  # as the next probe does
    assert is_whole(folder)
    assert not [path for parent in temporary_folders() for path in parent.glob(f"tuner-kept-*-{tuner.pid}-*")]


HOLDER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tuner.probe.own_files import Copies, ProtectionMeans
folder, store = map(Path, sys.argv[2:4])
copies = Copies([folder], folder / "runs/probe", ProtectionMeans(temporary=(store,), ended_within_s=float(sys.argv[4])))
print("copied", flush=True)
input()
"""
"""A tuner that has made copies, and is killed."""


@pytest.mark.parametrize(
    ("ended_within_s", "after_s", "kept"),
    [(30.0, 20.0, WORK), (30.0, 40.0, "three more weeks"), (44.0, 40.0, WORK)],
)
def test_what_a_person_trains_after_a_crash_is_not_put_back(
    folder: Path, store: Path, ended_within_s: float, after_s: float, kept: str
) -> None:
    words = [str(Path(__file__).parents[2]), str(folder), str(store), str(ended_within_s)]
    command = [sys.executable, "-c", HOLDER, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as tuner:
        assert tuner.stdout is not None
        assert tuner.stdout.readline() == "copied\n"
        (left_behind,) = store.iterdir()
        (folder / "model.pt").write_text("three more weeks")
        at_s = time.time() + after_s
        os.utime(folder / "model.pt", (at_s, at_s))
        clean_up([store])
        assert (folder / "model.pt").read_text() == "three more weeks", "its tuner lives"
        tuner.kill()
    clean_up([store])
    assert (folder / "model.pt").read_text() == kept
    assert (folder / "model.pt.kept").exists() == (kept != WORK)
    assert not left_behind.exists()


def test_a_trainer_that_cannot_be_started_leaves_no_view_and_a_missing_folder_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store := tmp_path / "store").mkdir()
    monkeypatch.setenv("TMPDIR", str(store))
    plan = plan_of(folder)
    with pytest.raises(TrainerError, match="cannot be started"):
        Process(replace(plan, argv=(sys.executable, "x" * 2**20)), MonotonicClock())  # longer than the kernel allows
    assert not list(store.iterdir())
    with pytest.raises(TrainerError, match="nowhere"):
        Process(replace(plan, cwd=folder / "nowhere"), MonotonicClock())


def test_a_probe_of_a_command_protects_its_files_unless_the_study_says_no(tmp_path: Path) -> None:
    slot = make_slot(tmp_path)

    def protects(to_train: bool = False, **options: object) -> bool:
        trainer = CommandTrainer(TrainerSpec(name="command", options={"command": "train --batch {batch}", **options}))
        return trainer.plan(trainer.cases()[0], {"batch": 8}, replace(slot, to_train=to_train)).protects_files

    assert (protects(), protects(protect=False), protects(to_train=True)) == (True, False, False)


def test_folders_that_saving_flags_name_and_links_are_protected_too(tmp_path: Path) -> None:
    folder, elsewhere, linked, data = (tmp_path / name for name in ("me", "elsewhere", "linked", "pictures"))
    of_setting = tmp_path / "of_setting"
    for path in (folder / "sub", elsewhere, linked, data, of_setting):
        path.mkdir(parents=True)
    (folder / "sub/best").symlink_to(linked)
    words = ["python", "train.py", "--save-dir", str(elsewhere), f"--output={folder}/sub/x.pt", "--pictures", str(data)]
    words += [f"trainer.ckpt_dir={of_setting}", f"data.root={data}", "--save-note", "no path " * 99]
    assert set(folders_of(words, folder, folder / "runs/probe")) == {folder, elsewhere, linked, of_setting}


def test_a_folder_that_vanishes_meanwhile_stops_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list_folder = os.scandir

    def vanishing(path: Path) -> object:
        if Path(path).name == "runs":
            raise FileNotFoundError(path)
        return list_folder(path)

    monkeypatch.setattr(os, "scandir", vanishing)
    assert folders_of(["train"], folder, folder / "runs/probe") == [folder]


def test_a_machine_without_views_says_what_it_does_and_which_files_are_too_large(folder: Path) -> None:
    said = warning([folder], folder / "runs/probe", NO_VIEWS)
    assert said is not None
    assert "are copied before each probe" in said
    assert "may be overwritten" not in said
    said = warning([folder], folder / "runs/probe", replace(NO_VIEWS, most_copied_bytes=len(WORK) + 1)) or ""
    assert "may be overwritten: move or copy" in said
    assert "train.py" in said


def test_the_folder_of_the_probe_itself_is_no_file_of_the_person(tmp_path: Path) -> None:
    assert folders_of(["train", "--out", str(tmp_path)], tmp_path, tmp_path) == []
    assert protected([], tmp_path) is None
    words = ["train", "--log", "/dev/null", "--out", "/tmp/a.pt"]
    assert folders_of(words, tmp_path, tmp_path / "probe") == [tmp_path]


def test_a_folder_with_files_of_another_group_has_no_view(folder: Path) -> None:
    """In a user namespace, such a file cannot be written: `Value too large for defined data type`."""
    protection = protected([folder], folder / "runs/probe", ProtectionMeans(user=4711, group=4712))
    assert isinstance(protection, Copies)
    protection.close()


def test_a_view_says_nothing(folder: Path) -> None:
    assert warning([folder], folder / "runs/probe") is None


def test_where_neither_can_be_had_the_probe_still_runs_and_the_person_is_warned(folder: Path) -> None:
    nowhere = ProtectionMeans(temporary=())
    assert protected([folder], folder / "runs/probe", nowhere) is None
    said = warning([folder], folder / "runs/probe", nowhere) or ""
    assert "a probe may overwrite files" in said
    assert "are copied" not in said


@contextmanager
def small_files() -> Iterator[None]:
    """Let this process write no file of more than four bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_copies_that_cannot_be_made_leave_nothing(folder: Path, store: Path) -> None:
    with small_files():
        protection = protected([folder], folder / "runs/probe", replace(NO_VIEWS, temporary=(store,)))
    assert (protection, list(store.iterdir())) == (None, [])
