"""A person at a terminal who ends a command at a question."""

import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

SCRIPT = """
import argparse, json, os, time
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--workers", type=int, default=2)
parser.parse_args()
for step in range(12):
    with open(os.environ["TUNER_PROGRESS"], "a") as file:
        print(json.dumps({"type": "iteration", "iteration": step}), file=file)
    time.sleep(0.05)
"""
TUNER = """
import fcntl, signal, sys, termios
for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from tuner.cli.main import main
main()
"""
"""Handles signals as a terminal would start the process, however these tests were started."""


def asked_until(terminal: int, text: bytes) -> bytes:
    """Return what a command writes to the terminal, up to a text."""
    said = b""
    while text not in said:
        said += os.read(terminal, 1000)
    return said


def test_the_exit_code_after_ctrl_c_is_that_of_an_interrupted_command(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ["init", "--devices", "cpu:1", "--", sys.executable, "train.py", "--batch-size", "8"]
    terminal, theirs = pty.openpty()
    command = [sys.executable, "-c", TUNER, *words]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, start_new_session=True
    ) as process:
        os.close(theirs)
        said = asked_until(terminal, b"[Enter = yes")
        assert b"then more while it pays (to " in b" ".join(said.split())
        ended = None
        while ended is None:  # a key between the question and Python's reading of the answer may go unnoticed
            os.write(terminal, b"\x03")
            with suppress(subprocess.TimeoutExpired):
                ended = process.wait(5)
        assert ended == 130
        asked_until(terminal, b"the first run is not kept; rerun to start again")
    with suppress(OSError):  # it may be gone
        os.close(terminal)
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"train.py", ".gitignore"}
