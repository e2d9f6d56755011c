"""Real processes: whatever a probe does and however the tuner ends, every process that the probe started ends."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from itertools import chain
from pathlib import Path

import psutil
import pytest
from tests_replays import scripted_plan

from tuner.errors import LaunchError, OutputError, TrainerError
from tuner.probe.output import Bounds
from tuner.probe.probe_plan import Device, MonotonicClock, ProbePlan
from tuner.probe.process import Process
from tuner.study.spec import ProbeSpec

CPU = [Device(name="cpu:0", model="x")]


def plan(tmp_path: Path, code: str, **env: str) -> ProbePlan:
    blank = scripted_plan(tmp_path / "out", CPU, ProbeSpec())
    return replace(blank, argv=(sys.executable, "-u", "-c", code), cwd=tmp_path, env=env)


def said(process: Process, word: str) -> list[str]:
    """Read lines until a line contains `word`. Return all lines so far."""
    texts: list[str] = []
    while not any(word in text for text in texts):
        texts += [line.text for line in process.lines(1.0)]
    return texts


def everything_said(process: Process) -> list[str]:
    texts: list[str] = []
    while process.exit_code() is None:
        texts += [line.text for line in process.lines(0.05)]
    return texts + [line.text for line in process.lines(0.0)]


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_output_is_handed_on_and_kept(tmp_path: Path) -> None:
    process = Process(plan(tmp_path, "import os; print('one'); print(os.environ['X'])", X="two"), MonotonicClock())
    assert everything_said(process) == ["one", "two"]
    assert process.exit_code() == 0
    assert (tmp_path / "out/console.log").read_text() == "one\ntwo\n"


def test_the_programs_of_the_trainer_s_environment_come_first(tmp_path: Path) -> None:
    program = tmp_path / "torchwalk"
    program.write_text("#!/bin/sh\necho walking\n")
    program.chmod(0o755)
    started = replace(plan(tmp_path, ""), argv=("torchwalk",), programs=tmp_path)
    assert everything_said(Process(started, MonotonicClock())) == ["walking"]
    with pytest.raises(LaunchError, match=r"No such file or directory: torchwalk; no shell .*; see `trainer.python`"):
        Process(replace(started, programs=None), MonotonicClock())


@pytest.mark.parametrize(("code", "expected"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)])
def test_the_exit_code_is_the_trainer_s_own(tmp_path: Path, code: str, expected: int) -> None:
    process = Process(plan(tmp_path, code), MonotonicClock())
    everything_said(process)
    assert process.exit_code() == expected


def test_the_exit_code_is_known_to_a_tuner_whose_parent_did_not_care(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    process = Process(plan(tmp_path, "raise SystemExit(3)"), MonotonicClock())
    everything_said(process)
    signal.signal(signal.SIGCHLD, before)
    assert process.exit_code() == 3


def test_files_are_written_first(tmp_path: Path) -> None:
    asked = replace(plan(tmp_path, "print(open('out/sub/a').read())"), files={tmp_path / "out/sub/a": "text"})
    assert everything_said(Process(asked, MonotonicClock())) == ["text"]


def test_progress_records_are_read_from_the_file(tmp_path: Path) -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1])\nfrom progress import report\nreport(iteration=4, rank=0)"
    progress = Path(sys.modules["tuner"].__file__ or "").parent
    asked = plan(tmp_path, code, TUNER_PROGRESS=str(tmp_path / "out/progress.jsonl"))
    process = Process(replace(asked, argv=(*asked.argv, str(progress))), MonotonicClock())
    (text,) = everything_said(process)
    assert '"iteration": 4' in text


def test_a_progress_record_ends_at_a_newline_and_at_nothing_else(tmp_path: Path) -> None:
    code = "open('out/progress.jsonl', 'wb').write(b'one\\xe2\\x80\\xa8record\\n')"
    assert everything_said(Process(plan(tmp_path, code), MonotonicClock())) == ["one\u2028record"]


WRITE_ANEW = """
import os, pathlib, time
file = pathlib.Path(os.environ["FILE"])
for word in ("longer", "short"):
    file.write_text(word + chr(10))
    while file.exists(): time.sleep(0.01)
"""


def test_a_progress_file_that_is_deleted_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "out/progress.jsonl"
    process = Process(plan(tmp_path, WRITE_ANEW, FILE=str(file)), MonotonicClock())
    for word in ("longer", "short"):
        records: list[str] = []
        while word not in records:
            records += [line.text for line in process.lines(0.05) if line.stream == "progress"]
        file.unlink()
    process.end()


def test_a_progress_record_without_end_is_skipped(tmp_path: Path) -> None:
    code = "open('out/progress.jsonl', 'w').write('x' * 1000 + chr(10) + 'whole' + chr(10))"
    process = Process(plan(tmp_path, code), MonotonicClock(), Bounds(tail_bytes=100))
    found = ""
    while "whole" not in found:
        found = "".join(line.text for line in process.lines(0.01))
        assert len(found) <= 100
    process.end()


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = "import time; print('up', flush=True); time.sleep(1000)"  # SIG_IGN is inherited
child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
print("pids", os.getpid(), child.pid)
time.sleep(1000)
"""


def test_end_reaches_what_ignores_term_and_has_left_the_group(tmp_path: Path) -> None:
    process = Process(plan(tmp_path, STUBBORN), MonotonicClock(), Bounds(term_grace_s=0.2))
    (told,) = said(process, "pids")
    pids = [int(word) for word in told.split()[1:]]
    assert process.end() == -signal.SIGKILL
    assert all(gone(pid) for pid in pids)


def test_what_does_not_end_is_given_up_and_named_until_it_has(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(1000)"
    process = Process(plan(tmp_path, code), MonotonicClock(), Bounds(term_grace_s=0.5, kill_s=-0.5))
    said(process, "up")
    assert process.still_running is None
    assert process.end() == process.end() == -1
    assert re.fullmatch(rf"pid {process.pid} \(state \w\)", process.still_running or "")
    while process.still_running:
        pass
    assert process.exit_code() == process.end() == -signal.SIGKILL
    assert gone(process.pid)


def test_a_stopped_guard_goes_on_when_the_probe_ends(tmp_path: Path) -> None:
    process = Process(plan(tmp_path, "import time; print('up'); time.sleep(1000)"), MonotonicClock())
    said(process, "up")
    (guard,) = psutil.Process().children()
    guard.suspend()
    assert process.end() == -signal.SIGTERM
    assert gone(process.pid)


def test_what_a_trainer_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    code = "import subprocess; print(subprocess.Popen(['sleep', '1000'], start_new_session=True).pid)"
    process = Process(plan(tmp_path, code), MonotonicClock())
    (pid,) = everything_said(process)
    assert gone(int(pid))


KILLED_CHILD = """
import os, signal, time
pid = os.fork()
if pid == 0:
    os.kill(os.getpid(), signal.SIGKILL)
print("child", pid, flush=True)
time.sleep(1000)
"""


def test_the_guard_reports_a_killed_process_that_nobody_collects(tmp_path: Path) -> None:
    process = Process(plan(tmp_path, KILLED_CHILD), MonotonicClock())
    told = said(process, "[tuner]")
    pid = told[0].split()[1]
    assert told[-1] == f"[tuner] process {pid} was killed by SIGKILL"
    process.end()


TUNER = """
import sys, dataclasses
sys.path.append(sys.argv[3])
from pathlib import Path
from tuner.probe.probe_plan import MonotonicClock
from tuner.probe.probe_plan import Device
from tuner.probe.process import Process
from tuner.study.spec import ProbeSpec
from tests_replays import scripted_plan
out = Path(sys.argv[1])
plan = scripted_plan(out / "out", [Device(name="cpu:0", model="x")], ProbeSpec())
process = Process(dataclasses.replace(plan, argv=(sys.executable, "-c", sys.argv[2]), cwd=out), MonotonicClock())
while True:
    for line in process.lines(1.0):
        print(line.text, flush=True)
"""


SUPPORT = str(Path(__file__).parents[1] / "support")
WAITS = "import os, time; print('pid', os.getpid(), os.getppid(), flush=True); time.sleep(1000)"


def test_kill_9_of_the_tuner_takes_the_trainer_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TUNER, str(tmp_path), WAITS, SUPPORT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tuner:
        assert tuner.stdout is not None
        trainer, guard = (psutil.Process(int(word)) for word in tuner.stdout.readline().split()[1:])
        tuner.kill()
    psutil.wait_procs([trainer, guard], timeout=30)
    assert gone(trainer.pid)
    assert gone(guard.pid)


LAUNCHER = """
import os, subprocess, time
print("pids", os.getppid(), os.getpid(), subprocess.Popen(["sleep", "1000"]).pid)
time.sleep(1000)
"""


def test_kill_9_of_the_guard_takes_the_trainer_with_it_and_is_noticed(tmp_path: Path) -> None:
    process = Process(plan(tmp_path, LAUNCHER), MonotonicClock())
    (told,) = said(process, "pids")
    guard, *trainer = (psutil.Process(int(word)) for word in told.split()[1:])
    guard.kill()
    everything_said(process)
    assert process.exit_code() == process.end() == -1
    psutil.wait_procs(trainer, timeout=30)
    assert all(gone(one.pid) for one in trainer)


ESCAPES = """
import os, subprocess, sys, time
env = {} if "unmarked" in sys.argv else None
escaped = subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True, env=env)
print("pids", os.getppid(), escaped.pid, flush=True)
time.sleep(1000)
"""


def escaping(tmp_path: Path, *arguments: str) -> ProbePlan:
    """A trainer whose child has a session of its own, and tells the guard's pid and the child's."""
    asked = plan(tmp_path, ESCAPES)
    return replace(asked, argv=(*asked.argv, *arguments))


def test_what_a_killed_guard_leaves_in_other_sessions_is_ended(tmp_path: Path) -> None:
    process = Process(escaping(tmp_path), MonotonicClock())
    (told,) = said(process, "pids")
    guard, escaped = (psutil.Process(int(word)) for word in told.split()[1:])
    guard.kill()
    everything_said(process)
    assert gone(escaped.pid)


def test_what_a_killed_tuner_and_a_killed_guard_leave_is_ended_by_the_next_probe(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TUNER, str(tmp_path), ESCAPES, SUPPORT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tuner:
        assert tuner.stdout is not None
        guard, escaped = (psutil.Process(int(word)) for word in tuner.stdout.readline().split()[1:])
        guard.suspend()
        tuner.kill()
    guard.kill()
    psutil.wait_procs([guard], timeout=30)
    assert escaped.is_running()
    everything_said(Process(plan(tmp_path, "pass"), MonotonicClock()))
    assert gone(escaped.pid)


def test_what_outlives_a_killed_guard_keeps_nobody_waiting(tmp_path: Path) -> None:
    process = Process(escaping(tmp_path, "unmarked"), MonotonicClock(), Bounds(close_s=0.1))
    (told,) = said(process, "pids")
    guard, escaped = (psutil.Process(int(word)) for word in told.split()[1:])
    guard.kill()
    everything_said(process)
    assert process.exit_code() == process.end() == -1
    assert escaped.is_running()
    escaped.kill()
    for thread in threading.enumerate():
        if thread.name == "console":
            thread.join()


def test_no_file_descriptor_is_left(tmp_path: Path) -> None:
    def open_files() -> int:
        return psutil.Process(os.getpid()).num_fds()

    everything_said(Process(plan(tmp_path, "pass"), MonotonicClock()))
    before = open_files()
    for _ in range(3):
        everything_said(Process(plan(tmp_path, "print(1)"), MonotonicClock()))
    with pytest.raises(TrainerError):
        Process(replace(plan(tmp_path, ""), argv=("no-such-program",)), MonotonicClock())
    assert open_files() == before


def test_a_command_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="no-such-program"):
        Process(replace(plan(tmp_path, ""), argv=("no-such-program",)), MonotonicClock())
    with pytest.raises(TrainerError, match="nowhere"):
        Process(replace(plan(tmp_path, ""), cwd=tmp_path / "nowhere"), MonotonicClock())


def test_a_full_disk_is_a_clear_error_and_ends_the_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = plan(tmp_path, "import time\nwhile True: print('x'); time.sleep(0.01)")
    monkeypatch.setattr("tuner.probe.probe_plan.Slot.console", Path("/dev/full"))  # no space left on device
    process = Process(asked, MonotonicClock())
    with pytest.raises(OutputError, match="No space left"):
        said(process, "never")
    process.end()
    assert gone(process.pid)


def test_a_disk_that_fills_up_before_the_start_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=f"^{tmp_path}/out cannot be written: No space left"):
        Process(replace(plan(tmp_path, "pass"), files={Path("/dev/full"): "x"}), MonotonicClock())


def test_an_out_dir_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file where the folder should be")
    blocked = replace(plan(tmp_path, "pass").slot, out_dir=tmp_path / "out/below")
    with pytest.raises(OutputError, match="out"):
        Process(replace(plan(tmp_path, "pass"), slot=blocked), MonotonicClock())


def test_a_console_log_that_cannot_be_opened_is_a_clear_error(tmp_path: Path) -> None:
    asked = plan(tmp_path, "import time; time.sleep(1000)")
    with pytest.raises(OutputError, match=r"console\.log"):
        Process(replace(asked, files={tmp_path / "out/console.log/in_the_way": ""}), MonotonicClock())
    assert not psutil.Process().children()


def test_the_last_words_of_a_trainer_that_says_too_much_are_kept(tmp_path: Path) -> None:
    process = Process(
        plan(tmp_path, "for number in range(2000): print(number, flush=True)"),
        MonotonicClock(),
        Bounds(waiting_bytes=5000),
    )
    while process.exit_code() is None:
        pass
    assert [line.text for line in process.lines(0.0)] == [str(number) for number in range(2000)]


WAITS_FOR_ITS_LOG = """
for number in range(20):
    print(number, flush=True)
    while open(LOG).read().split()[-1:] != [str(number)]: pass
"""


def test_a_trainer_does_not_wait_for_a_reader_that_is_busy_for_a_while(tmp_path: Path) -> None:
    """The reader may wait for a database that the trainer itself locks."""
    log = tmp_path / "out/console.log"
    process = Process(plan(tmp_path, f"LOG = {str(log)!r}\n{WAITS_FOR_ITS_LOG}"), MonotonicClock())
    while process.exit_code() is None:
        pass
    assert [line.text for line in process.lines(0.0)] == [str(number) for number in range(20)]


def test_a_flood_without_newlines_is_bounded_on_disk(tmp_path: Path) -> None:
    process = Process(
        plan(tmp_path, "import sys; [sys.stdout.write('x' * 9999) for _ in range(100)]"),
        MonotonicClock(),
        Bounds(log_bytes=1000),
    )
    everything_said(process)
    log = (tmp_path / "out/console.log").read_text()
    assert log.startswith("x" * 1000 + "\n[tuner:")
    assert len(log) < 1100


@pytest.mark.parametrize(
    "made", ["os.mkdir(path)", "os.mkfifo(path)", "os.symlink('/dev/zero', path)"], ids=["folder", "pipe", "device"]
)
def test_reports_that_cannot_be_read_are_named_once(tmp_path: Path, made: str) -> None:
    code = f"import os, time; path = os.environ['REPORTS']; {made}; time.sleep(1000)"
    blank = plan(tmp_path, code)
    files_before = psutil.Process().num_fds()
    process = Process(replace(blank, env={"REPORTS": str(blank.slot.progress)}), MonotonicClock())
    readings: list[list[dict[str, object]]] = []
    while len(readings) < 3 or not any(readings[:-2]):  # twice more after the first message
        readings.append([json.loads(line.text) for line in process.lines(0.05) if line.stream == "progress"])
    process.end()
    assert psutil.Process().num_fds() == files_before
    (message,) = chain(*readings)
    assert message["type"] == "unread"
    assert "cannot be read" in str(message["detail"])
