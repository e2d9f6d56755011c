from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests_devices import RecordedProbe, ReplayedSource
from tests_replays import FakeClock, ReplayedRecorder, ScriptedTrainer, scripted_plan

from tuner.count import ProcessCounts
from tuner.drafting.command_template import WordChange
from tuner.drafting.watching import Watched, watch
from tuner.errors import StudyError, TrainerError
from tuner.probe.probe_plan import Device, OutputLine
from tuner.study.command_words import missing_script
from tuner.study.spec import ProbeSpec

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
        self,
        folder: Path,
        lines: list[OutputLine],
        *,
        records: "Records | None" = None,
        exit_at_s: float | None = None,
        exit_code: int = 0,
    ) -> None:
        self.clock = FakeClock()
        self.trainer = ScriptedTrainer(
            self.clock, lines, records=records or [], exit_at_s=exit_at_s, exit_code=exit_code
        )
        self.plan = scripted_plan(folder, [CPU], ProbeSpec())

    def watch(
        self,
        limit_s: float = 60.0,
        changes: Sequence[WordChange] = (),
        check: Callable[[Sequence[ProcessCounts]], None] = lambda _: None,
    ) -> Watched:
        silent = RecordedProbe(devices=(CPU,), samples=(), marks_s=(), total_s=0.0, exit_code=0)
        recorder = ReplayedRecorder(ReplayedSource(silent), [], self.clock)
        return watch(
            self.plan,
            launch=self.trainer,
            recorder=recorder,
            clock=self.clock,
            limit_s=limit_s,
            changes=changes,
            check=check,
        )

    def complaint(self, limit_s: float = 60.0) -> str:
        with pytest.raises(TrainerError) as refused:
            self.watch(limit_s)
        assert self.trainer.exit_code() is not None
        return str(refused.value)


def test_it_ends_the_command_once_it_is_understood(tmp_path: Path) -> None:
    world = World(tmp_path, steps(1000))
    watched = world.watch()
    assert watched.printed
    assert watched.printed.is_plain
    assert watched.iteration_s == pytest.approx(1.0)
    assert "no Python process" in str(watched.why_uncounted)
    assert world.trainer.ended_at_s is not None
    assert 20 < world.trainer.ended_at_s < 25


def test_fast_iterations_are_watched_for_some_seconds(tmp_path: Path) -> None:
    world = World(tmp_path, steps(800, every_s=0.02))
    assert world.watch().seconds == pytest.approx(20, abs=1.5)


def test_three_iterations_at_the_end_of_the_time_are_enough(tmp_path: Path) -> None:
    watched = World(tmp_path, steps(3, every_s=20.0)).watch()
    assert [one.iteration for one in watched.reports] == [0, 1, 2]


def test_a_command_that_ends_well_after_some_iterations_is_understood(tmp_path: Path) -> None:
    assert len(World(tmp_path, steps(4), exit_at_s=14.0).watch().reports) == 4


@pytest.mark.parametrize(
    ("lines", "exit_code", "words"),
    [
        (TRACEBACK, 1, ["failed after", "exit code 1: ValueError: no such robot", "correct it", "console.log"]),
        (
            ("ModuleNotFoundError: No module named 'x'",),
            1,
            ["No module named 'x'; correct it, or type the full path of the Python that has it, then"],
        ),
        (("train.py: error: unrecognized arguments: --envs",), 2, ["unrecognized arguments: --envs"]),
        (("the input device is not a TTY",), 1, ["exit code 1: the input device is not a TTY"]),
        ((), 7, ["exit code 7: no output"]),
        ((), 0, ["ended by itself after 3.0 s", "train for longer"]),
        (("[1/9] 1 tree", "[9/9] 1 tree"), 0, ["before three iterations", "lines: [1/9] 1 tree | [9/9]", "report()"]),
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
        ([], ["printed nothing in 1 min 00 s", "`python -I`", "--seconds 300", "report()"]),
        (
            [OutputLine(t_s=float(n), text="still waiting") for n in range(50)],
            ["nothing in 50 lines", "still waiting", "report()"],
        ),
    ],
)
def test_a_command_that_goes_on_without_progress_is_ended_and_named(
    tmp_path: Path, lines: list[OutputLine], words: list[str]
) -> None:
    said = World(tmp_path, lines).complaint()
    assert all(word in said for word in words), said


def test_of_a_flood_of_long_lines_only_the_last_are_kept_and_shown_in_part(tmp_path: Path) -> None:
    lines = [OutputLine(t_s=0.0004 * number, text="word " * 60) for number in range(2100)]
    said = World(tmp_path, lines).complaint(2.0)
    assert "nothing in 2000 lines of 2." in said
    assert len(said) < 1500


Records = list[tuple[float, dict[str, object]]]

BEGIN: dict[str, object] = {"type": "start", "parameters": 10, "rank": 0, "world": 1, "data_rank": 0}
"""What a process records at the first step of its optimizer."""


def counted(at_s: float, numbers: range, every_s: float = 1.0) -> Records:
    """Return the records of steps with 32 samples each, the first of them at `at_s`."""
    records: Records = [(at_s, BEGIN)]
    for place, step in enumerate(numbers):
        t_s = at_s + place * every_s
        counts: dict[str, object] = {"steps": step, "rows": 32 * step, "forwards": step, "backwards": step}
        records.append((t_s, {"type": "count", "at_s": t_s, **counts}))
    return records


def started(folder: Path) -> Path:
    """Leave what the first Python of a command leaves that counts inside."""
    (folder / "counts").mkdir()
    (folder / "counts/started").touch()
    return folder


def test_flags_are_checked_at_the_first_step_when_no_other_parser_follows(tmp_path: Path) -> None:
    options = [{"names": ["--num-workers"], "value": 2, "choices": None, "switch": False, "off": [], "typed": False}]
    flags: Records = [(5.0, {"type": "flags", "parser": "argparse", "options": options})]
    world = World(started(tmp_path), [OutputLine(t_s=20.0, text="loading")], records=flags + counted(22.0, range(1, 2)))

    def refuse(processes: Sequence[ProcessCounts]) -> None:
        raise StudyError(processes[0].flags[0].names[0])

    with pytest.raises(StudyError, match="num-workers"):
        world.watch(check=refuse)
    assert 22 <= world.clock.now() <= 23
    assert world.trainer.exit_code() is not None


def test_a_training_that_starts_slowly_is_watched_up_to_its_first_steps(tmp_path: Path) -> None:
    records = counted(250.0, range(1, 60), every_s=2.0)
    watched = World(started(tmp_path), [OutputLine(t_s=50.0, text="loading")], records=records).watch()
    assert watched.training
    assert watched.training.signature.samples_per_step == 32
    assert watched.reports[0].t_s == 254.0


def test_a_training_without_a_step_is_watched_for_five_minutes_and_told_so(tmp_path: Path) -> None:
    said = World(started(tmp_path), [OutputLine(t_s=50.0, text="loading")]).complaint()
    assert all(word in said for word in ("no optimizer step", " 5 min", "loading", "--seconds 600")), said


def test_a_training_of_too_few_steps_is_told_how_many_it_made(tmp_path: Path) -> None:
    said = World(started(tmp_path), [], records=counted(11.0, range(1, 4)), exit_at_s=15.0).complaint()
    assert all(word in said for word in ("3 optimizer steps", "about 12", "train for longer")), said


def test_a_crash_in_the_output_is_told_and_not_waited_for(tmp_path: Path) -> None:
    lines = [OutputLine(t_s=59.0, text=text) for text in TRACEBACK]
    world = World(started(tmp_path), lines)
    said = world.complaint()
    assert "ValueError: no such robot; correct it" in said
    assert "--seconds" not in said
    assert world.clock.now() < 65


def test_what_is_counted_inside_goes_before_printed_lines(tmp_path: Path) -> None:
    records = [*counted(9.0, range(1, 3)), *counted(29.0, range(3, 60))[1:]]
    watched = World(tmp_path, steps(100), records=records).watch()
    assert watched.training
    assert (watched.printed, watched.why_uncounted) == (None, None)
    assert watched.reports[0].iteration == 3
    assert watched.seconds > 29  # printed lines alone would have been enough before


def test_where_samples_cannot_be_counted_the_lines_are_read_and_the_reason_is_kept(tmp_path: Path) -> None:
    why: Records = [(9.5, {"type": "off", "part": "steps", "why": "two models take turns"})]
    watched = World(tmp_path, steps(100), records=counted(9.0, range(1, 2)) + why).watch()
    assert watched.printed is not None
    assert watched.why_uncounted == "steps: two models take turns"


def test_a_failure_after_some_iterations_is_a_failure(tmp_path: Path) -> None:
    printed = [*steps(4), *(OutputLine(t_s=14.0, text=text) for text in TRACEBACK)]
    assert "ValueError: no such robot" in World(tmp_path, printed, exit_at_s=14.5, exit_code=1).complaint()


@pytest.mark.parametrize(
    ("error", "is_told"),
    [("train.py: error: unrecognized arguments: --master-port 1", True), ("ValueError: no such robot", False)],
)
def test_an_added_word_is_told_under_an_error_that_names_it(tmp_path: Path, error: str, is_told: bool) -> None:
    world = World(tmp_path, [OutputLine(t_s=1.0, text=error)], exit_at_s=3.0, exit_code=2)
    with pytest.raises(TrainerError) as refused:
        world.watch(changes=[WordChange("", "--master-port {port}"), WordChange("", "hydra.run.dir={out_dir}")])
    assert ("adds --master-port {port} (a free port" in str(refused.value)) is is_told
    assert "hydra" not in str(refused.value)


def test_a_script_that_is_not_there_is_named_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    for command in ("python train.py", "python -m trian", "bash run.sh a.py", "torchrun --no-python a.py"):
        assert missing_script(command.split(), tmp_path) is None
    assert missing_script(["/usr/bin/python3.12", "-u", "trian.py", "--lr", "1"], tmp_path) == "trian.py"
    assert missing_script(["torchrun", "--nproc-per-node", "2", "a.py", "b.py"], tmp_path) == "a.py"
