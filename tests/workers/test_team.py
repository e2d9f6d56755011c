"""Worker processes: what they write, how they end, and that none is left."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tuner.devices.cpu import TEAM
from tuner.running.workers import Exit, Line, WorkerPlan, WorkerTeam


def script(name: str, code: str, **env: str) -> WorkerPlan:
    return WorkerPlan(name=name, argv=[sys.executable, "-I", "-S", "-c", code], env=env)


def run(*plans: WorkerPlan) -> tuple[list[int], list[tuple[str, Line]], list[tuple[str, Exit]]]:
    events: list[tuple[str, Line]] = []
    ends: list[tuple[str, Exit]] = []
    team = WorkerTeam(plans)
    codes = team.run(lambda name, event: events.append((name, event)), lambda name, end: ends.append((name, end)))
    team.close()
    return codes, events, ends


def test_lines_of_all_workers_are_shown_with_their_names() -> None:
    hello = """import os; print('{"line": "hello"}'); print("plain"); print(os.environ["WORD"])"""
    codes, events, ends = run(script("one", hello, WORD="a"), script("two", hello + "; raise SystemExit(2)", WORD="b"))
    assert codes == [0, 2]
    said = [{"line": "hello"}, {"complaint": "plain"}]
    assert [event for name, event in events if name == "one"] == [*said, {"complaint": "a"}]
    assert [event for name, event in events if name == "two"] == [*said, {"complaint": "b"}]
    assert not any(end.died or end.is_restarted for _, end in ends)


def test_each_worker_knows_its_leader() -> None:
    _, events, _ = run(script("one", f"import os; print(os.environ['{TEAM}'])"))
    assert [line for _, line in events] == [{"complaint": str(os.getpid())}]


def test_a_worker_that_dies_is_started_again(tmp_path: Path) -> None:
    once = """
import os, pathlib, signal, sys
mark = pathlib.Path(os.environ["MARK"])
if not mark.exists():
    mark.touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    codes, _, ends = run(script("one", once, MARK=str(tmp_path / "mark")))
    assert codes == [0]
    assert [end for _, end in ends] == [Exit(code=-9, is_restarted=True), Exit(code=0, is_restarted=False)]
    assert ends[0][1].died


def test_a_worker_that_keeps_dying_is_given_up() -> None:
    codes, _, ends = run(script("one", "raise SystemExit(1)"))
    assert codes == [1]
    assert [end.is_restarted for _, end in ends] == [True] * WorkerTeam.RESTARTS + [False]


def test_workers_end_when_they_are_asked_to() -> None:
    waits = """import sys; print('{"now": "waiting"}', flush=True); sys.stdin.read(); raise SystemExit(130)"""
    seen: list[Line] = []
    team = WorkerTeam([script("one", waits), script("two", waits)])
    codes = team.run(lambda _, event: seen.append(event), lambda *_: None, lambda: len(seen) == 2)
    assert codes == [130, 130]


def test_a_worker_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    """The parent is killed. Its worker sees the end of its standard input, and then writes to a named pipe."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    waits = f"import sys; print(1, flush=True); sys.stdin.read(); open({str(pipe)!r}, 'w').write('ended')"
    parent = f"""
import os, signal, sys
from tuner.running.workers import WorkerPlan, WorkerTeam
team = WorkerTeam([WorkerPlan(name="one", argv=[sys.executable, "-I", "-S", "-c", {waits!r}])])
team.run(lambda *_: os.kill(os.getpid(), signal.SIGKILL), lambda *_: None)
"""
    assert subprocess.run([sys.executable, "-c", parent], check=False).returncode == -signal.SIGKILL
    assert pipe.read_text() == "ended"
