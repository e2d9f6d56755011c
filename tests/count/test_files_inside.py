"""What a script reads, told from inside: its configuration files, and whether it reads its command line by itself."""

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import tuner.count

INSIDE = Path(tuner.count.__file__).parent / "inside"
FILES = """
    import os
    from pathlib import Path

    import helper

    os.makedirs("other", exist_ok=True)
    os.chdir("other")
    for name in ("../plain.json", "../named.json", "../data.txt"):
        open(name).read()
    Path("../named.yaml").read_bytes()
    open("../written.json", "w").close()
    try:
        open("missing.json")
    except FileNotFoundError:
        print("done")
"""
FORKED = """
    import os

    child = os.fork()
    if not child:
        open("plain.json").close()
        os._exit(0)
    os.waitpid(child, 0)
    print("done")
"""
SPAWNED = """
    import multiprocessing, sys

    open("plain.json").close()

    def work():
        print("done" if type(sys.argv) is list else sys.argv)

    if __name__ == "__main__":
        child = multiprocessing.get_context("spawn").Process(target=work)
        child.start()
        child.join()
"""


def told(folder: Path, script: str, *words: str, start: tuple[str, ...] = ("train.py",)) -> list[dict[str, Any]]:
    """Return the records of a script's run, without those of its processes. It prints `done`, and nothing else."""
    for name in ("plain.json", "data.txt", "named.yaml", "named.json"):
        (folder / name).write_text("")
    (folder / "helper.py").write_text(
        "def words():\n    pass\nif __name__ == '__main__':\n    import sys; print(sys.argv)"
    )
    (folder / "train.py").write_text(dedent(script))
    (folder / "count").mkdir()
    environment = os.environ | {"PYTHONPATH": str(INSIDE), "TUNER_COUNT": str(folder / "count")}
    environment["TUNER_COUNT_FIRST"] = "1"
    command = [sys.executable, *start, *words]
    run = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    assert run.stdout.split() == ["done"], run.stdout + run.stderr
    lines = [line for file in sorted((folder / "count").iterdir()) for line in file.read_text().splitlines()]
    return [record for record in map(json.loads, lines) if record["type"] != "process"]


def test_files_that_the_command_line_names_are_told_when_they_are_read(tmp_path: Path) -> None:
    words = ["--config=named.yaml", "named.json", "--out", "missing.json", "../written.json", "--data", "data.txt"]
    files = [(record["path"], record["named_by"]) for record in told(tmp_path, FILES, *words)]
    assert files == [
        (str(tmp_path / "named.json"), "named.json"),
        (str(tmp_path / "named.yaml"), "--config=named.yaml"),
    ]


@pytest.mark.parametrize("script", [FORKED, SPAWNED])
def test_a_child_process_tells_nothing(tmp_path: Path, script: str) -> None:
    records = told(tmp_path, script, "plain.json")
    assert [record["type"] for record in records] == (["argv", "file"] if script == SPAWNED else [])


@pytest.mark.parametrize(
    ("script", "reads"),
    [
        ("print('done')", False),
        ("import helper\nprint('done')", False),
        ("import sys\nif len(sys.argv) > 9:\n    print(sys.argv)\nprint('done')", True),
        ("from sys import argv\ndef main():\n    return argv[1:]\nmain()\nprint('done')", True),
        ("exec('import sys; words = sys.argv[1:]')\nprint('done')", True),
    ],
)
def test_a_script_that_names_argv_may_read_its_command_line(tmp_path: Path, script: str, reads: bool) -> None:
    assert [record["type"] for record in told(tmp_path, script, "--batch=4")] == ["argv"] * reads


@pytest.mark.parametrize("start", [("-m", "train"), ("-c", "import sys; sys.argv; print('done')")])
def test_a_module_and_a_command_are_scripts_as_well(tmp_path: Path, start: tuple[str, ...]) -> None:
    records = told(tmp_path, "import sys; sys.argv; print('done')", start=start)
    assert [record["type"] for record in records] == ["argv"]


@pytest.mark.parametrize(
    "hostile",
    [
        "sys.argv = {'a': 1}",
        "sys.argv = 5",
        "sys.addaudithook(lambda event, args: event == 'open' and str(args[0]).endswith('.jsonl') and 1 / 0)",
    ],
)
def test_a_script_that_the_counting_does_not_fit_runs_as_without_it(tmp_path: Path, hostile: str) -> None:
    script = (
        f"import sys\nopen('plain.json').close()\n{hostile}\nopen('named.json').close()\nimport helper\nprint('done')"
    )
    told(tmp_path, script, "plain.json", "named.json")
