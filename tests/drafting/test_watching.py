import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tuner.drafting.watching import Watched, spawned, watch
from tuner.errors import TrainerError
from tuner.probe.probe_plan import Device
from tuner.probe.protocols import OutputLine
from tuner.study.spec import ProbeSpec
from tuner.testing.fake_devices import RecordedProbe, ReplayedSource
from tuner.testing.replays import FakeClock, ReplayedRecorder, ScriptedTrainer, scripted_plan

CPU = Device(name="cpu:0", model="a CPU")
TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "train.py", line 1, in <module>',
    "ValueError: no such robot",
)


def steps(count: int, every_s: float = 1.0) -> list[OutputLine]:
    return [OutputLine(t_s=10 + place * every_s, text=f"step {place} loss 0.{place}") for place in range(count)]


class World:
    """A scripted command, and a watch over it."""

    def __init__(
        self, folder: Path, lines: list[OutputLine], *, exit_at_s: float | None = None, exit_code: int = 0
    ) -> None:
        self.clock = FakeClock()
        self.trainer = ScriptedTrainer(self.clock, lines, exit_at_s=exit_at_s, exit_code=exit_code)
        self.plan = scripted_plan(folder, [CPU], ProbeSpec())

    def watch(self, limit_s: float = 60.0) -> Watched:
        silent = RecordedProbe(devices=(CPU,), samples=(), marks_s=(), total_s=0.0, exit_code=0)
        recorder = ReplayedRecorder(ReplayedSource(silent), [], self.clock)
        return watch(self.plan, launch=self.trainer, recorder=recorder, clock=self.clock, limit_s=limit_s)

    def complaint(self, limit_s: float = 60.0) -> str:
        with pytest.raises(TrainerError) as refused:
            self.watch(limit_s)
        assert self.trainer.exit_code() is not None
        return str(refused.value)


def test_it_ends_the_command_once_it_is_understood(tmp_path: Path) -> None:
    world = World(tmp_path, steps(1000))
    watched = world.watch()
    assert watched.found.patterns == (r"step\s*(?P<iteration>\d+)",)
    assert watched.found.iteration_s == pytest.approx(1.0)
    assert world.trainer.ended_at_s is not None
    assert 20 < world.trainer.ended_at_s < 25


def test_fast_iterations_are_watched_for_some_seconds(tmp_path: Path) -> None:
    world = World(tmp_path, steps(800, every_s=0.02))
    assert world.watch().seconds == pytest.approx(20, abs=1.5)


def test_a_first_end_that_is_near_is_waited_for(tmp_path: Path) -> None:
    warm_up = [OutputLine(t_s=step * 0.3, text=f"step {step}/50 loss nan") for step in range(1, 51)]
    trains = [OutputLine(t_s=15.0 + step, text=f"step {step}/5000 loss 0.{step}") for step in range(1, 100)]
    watched = World(tmp_path, [*warm_up, *trains]).watch()
    assert watched.found.iteration_s == pytest.approx(1.0)
    assert 25 < watched.seconds < 30


def test_a_bar_without_a_name_is_watched_for_some_epochs(tmp_path: Path) -> None:
    lines: list[OutputLine] = []
    for epoch in range(50):
        begin_s, step_s = epoch // 2 * 4.0 + epoch % 2 * 3.0, (0.15, 0.05)[epoch % 2]
        lines += [OutputLine(t_s=begin_s + n * step_s, text=f"{n:3}%|#  | {n}/20 [00:01<00:10]") for n in range(20)]
    watched = World(tmp_path, lines).watch()
    assert 8 < watched.seconds < 12
    assert "took turns" in watched.found.doubt


def test_three_iterations_at_the_end_of_the_time_are_enough(tmp_path: Path) -> None:
    watched = World(tmp_path, steps(3, every_s=20.0)).watch()
    assert [one.iteration for one in watched.found.reports] == [0, 1, 2]


def test_a_command_that_ends_well_after_some_iterations_is_understood(tmp_path: Path) -> None:
    assert len(World(tmp_path, steps(4), exit_at_s=14.0).watch().found.reports) == 4


@pytest.mark.parametrize(
    ("lines", "exit_code", "words"),
    [
        (TRACEBACK, 1, ["failed after", "exit code 1: ValueError: no such robot", "correct it", "console.log"]),
        (
            ("ModuleNotFoundError: No module named 'x'",),
            1,
            ["No module named 'x'; correct it, or name the Python that has it by --python, then"],
        ),
        (("train.py: error: unrecognized arguments: --envs",), 2, ["unrecognized arguments: --envs"]),
        (("Name of the run:", "EOFError: EOF when reading a line"), 1, ["needs a terminal", "by options"]),
        (("the input device is not a TTY",), 1, ["needs a terminal"]),
        ((), 7, ["exit code 7: no output"]),
        ((), 0, ["ended by itself after 3.0 s", "train for longer"]),
        (("step 1", "step 2"), 0, ["before three iterations"]),
    ],
)
def test_a_command_that_ends_at_once_is_named(
    tmp_path: Path, lines: tuple[str, ...], exit_code: int, words: list[str]
) -> None:
    printed = [OutputLine(t_s=1.0, text=text) for text in lines]
    said = World(tmp_path, printed, exit_at_s=3.0, exit_code=exit_code).complaint()
    assert all(word in said for word in words), said


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], ["printed nothing in 1 min 00 s", "--seconds 300", "report()"]),
        (
            [OutputLine(t_s=float(n), text="still waiting") for n in range(50)],
            ["nothing in 50 line(s)", "still waiting", "--preset"],
        ),
    ],
)
def test_a_command_that_goes_on_without_progress_is_ended_and_named(
    tmp_path: Path, lines: list[OutputLine], words: list[str]
) -> None:
    said = World(tmp_path, lines).complaint()
    assert all(word in said for word in words), said


def test_of_a_flood_of_long_lines_only_the_last_are_kept_and_each_in_part(tmp_path: Path) -> None:
    text = "word " * 3000
    said = World(tmp_path, [OutputLine(t_s=0.0025 * number, text=text) for number in range(850)]).complaint(2.0)
    kept = re.search(r"nothing in (\d+) line\(s\) of 2\.\d s", said)
    assert kept
    assert 100 < int(kept[1]) <= 500
    assert len(said) < 1500


@pytest.mark.parametrize(("words", "is_told"), [((), True), (("--no-capture-output",), False)])
def test_the_output_that_conda_keeps_is_asked_for(tmp_path: Path, words: tuple[str, ...], is_told: bool) -> None:
    world = World(tmp_path, [])
    world.plan = replace(world.plan, argv=("/opt/conda", "run", *words, "-n", "rl", "python", "train.py"))
    assert ("add --no-capture-output after `run`" in world.complaint()) is is_told


def test_a_file_of_progress_in_another_folder_is_named_with_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    world = World(tmp_path / "out", [])
    world.plan = replace(world.plan, cwd=tmp_path)
    os.utime(tmp_path / "out", (100.0, 100.0))
    (tmp_path / "metrics.csv").write_text("step,loss\n")
    assert "writes metrics.csv into the folder in which it runs" in world.complaint()


def test_a_failure_after_some_iterations_is_a_failure(tmp_path: Path) -> None:
    printed = [*steps(4), *(OutputLine(t_s=14.0, text=text) for text in TRACEBACK)]
    assert "ValueError: no such robot" in World(tmp_path, printed, exit_at_s=14.5, exit_code=1).complaint()


def test_the_ranks_that_a_command_spawns_are_counted() -> None:
    rank = "import os, time; os.write(1, b'up\\n'); time.sleep(60)"  # one write, which no other splits
    script = (
        "import multiprocessing\nspawning = multiprocessing.get_context('spawn')\n"
        f"for _ in range(2): spawning.Process(target=exec, args=({rank!r},)).start()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True) as command:
        assert command.stdout is not None
        assert [command.stdout.readline() for _ in range(2)] == [b"up\n"] * 2
        assert spawned(command.pid) == 2
        os.killpg(command.pid, signal.SIGKILL)
