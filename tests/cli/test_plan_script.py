"""`tuner plan`: the script gives the trainer what a probe gives it, byte for byte, and runs no text as code."""

import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from tests_cli import Tuner, study_file

from tuner.cli.options import print_to_copy
from tuner.cli.plan import script
from tuner.probe.probe_plan import ProbePlan
from tuner.running.job import open_workbench
from tuner.trainers.base import make_slot

SHOWN = r"""printf '%s\0' "$A" "$B" "$C" "$D" "$Q" "$@" """
TEXTS = [
    "a\tb",
    "\x1b[31m\u202e",
    "${NOPE:-$(touch pwned)}",
    '${NOPE:-`touch pwned` $HOME "it\'s"}',
    "$${HOME}",
    "${KEY}",
]


def by_hand(text: str, folder: Path, **environ: str) -> list[str]:
    """Run a script; return what its program prints. Nothing else may happen."""
    usual = {"PATH": os.environ["PATH"], "HOME": "/home/somebody"}
    said = subprocess.run(
        ["/bin/bash", "-c", text], env={**usual, **environ}, cwd=folder, capture_output=True, check=True
    )
    assert not list(folder.rglob("pwned"))
    return said.stdout.decode().split("\0")[:-1]


def test_a_script_starts_what_a_probe_starts(tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "s3  cret")
    monkeypatch.setenv("HOME", "/home/somebody")
    options = {
        "command": ["sh", "-c", SHOWN, "shown", "{tag}", *TEXTS],
        "cases": ["walk"],
        "env": dict(zip("ABCDEF", TEXTS, strict=True)),
    }
    file = study_file(
        tmp_path,
        trainer={"name": "command", "python": sys.executable, "options": options},
        space={"tag": {"choices": ["$${HOME} $(touch pwned)"]}},
        environment={"variables": {"Q": "${PATH}:${NOPE:-$(touch pwned)}:$${A}"}},
    )
    code, out, err = tuner("plan", "--study", file)
    assert (code, err) == (0, "")
    bench = open_workbench(str(file), devices="cpu:1", runs=Path("runs"))
    plan = bench.trainer.plan(bench.trainer.cases()[0], {"tag": "${HOME} $(touch pwned)"}, make_slot(tmp_path))
    plan = replace(plan, env={**plan.env, "Q": bench.variables["Q"]})
    inherited = {**os.environ, "PATH": f"{plan.programs}:{os.environ['PATH']}"}
    environ = plan.environment(inherited)
    measured = [*(environ[name] for name in "ABCDQ"), *plan.command(inherited)[4:]]
    assert measured[4].endswith(":$(touch pwned):${A}")
    assert measured[5:8] == ["${HOME} $(touch pwned)", "a\tb", "\x1b[31m\u202e"]
    assert by_hand(out, tmp_path, KEY="s3  cret") == measured


@pytest.mark.parametrize("text", ["a: 1\n\n", "a: 1", "", "END_OF_FILE\ntouch pwned\n", "a\tb\r\n", "\x1b'\\n"])
def test_a_script_writes_the_files_of_a_probe(tmp_path: Path, text: str) -> None:
    file, slot = tmp_path / "it's\n here" / "agent.yaml", make_slot(tmp_path / "out")
    plan = ProbePlan(config={}, argv=("true",), cwd=tmp_path, env={}, files={file: text}, slot=slot, session_key="")
    assert by_hand(script(plan), tmp_path) == []
    assert file.read_bytes() == text.encode()


def test_a_line_to_copy_keeps_its_own_variables(tmp_path: Path) -> None:
    env = {"A": "probe", "B": "1"}
    plan = ProbePlan(
        config={}, argv=("true",), cwd=tmp_path, env=env, files={}, slot=make_slot(tmp_path), session_key=""
    )
    assert script(plan, typed="env UID=5 A=2 train").splitlines()[-1] == "B=1 env UID=5 A=2 train"


def test_what_is_copied_passes_no_renderer(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii"))
    line = "train --tag 'é  :smile: [red]\t" + 200 * "x "
    print_to_copy(line, Console(width=20))
    print_to_copy(line)
    print_to_copy(line, Console(quiet=True))
    assert written.getvalue().decode() == f"{line}\n{line}\n"
