"""A Python that has loaded the command line once, and runs code in forks of itself, each as a process of its own.

Run as a script, this file is that Python: it answers each request on its standard input with an exit code.
"""

import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess


class Forks:
    """Starts processes that have loaded the command line already, which alone takes more than a second."""

    def __init__(self, server: "subprocess.Popen[str]", folder: Path) -> None:
        self._server, self._folder = server, folder

    def run(self, code: str, *arguments: str, stdout: Path | None = None) -> "CompletedProcess[str]":
        """Run code to its end, as `python -c` does; `stdout` takes its output where it is not to be read."""
        out, err = stdout or self._folder / "out", self._folder / "err"
        for file in (out, err):
            file.open("w").close()
        request = {"code": code, "arguments": arguments, "out": str(out), "err": str(err), "cwd": str(Path.cwd())}
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        exit_code = int(self._server.stdout.readline())
        said = "" if stdout else out.read_text()
        return CompletedProcess(args=["-c", *arguments], returncode=exit_code, stdout=said, stderr=err.read_text())


@contextmanager
def forks(folder: Path) -> Iterator[Forks]:
    """Start such a Python, and end it."""
    server = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Forks(server, folder)
    finally:
        server.communicate()


def _serve() -> None:
    from tuner.cli.main import Commands  # noqa: PLC0415 - what all forks share, with the commands' own files

    for command in Commands(name="tuner").commands.values():
        command.make_context(command.name, [], resilient_parsing=True)
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        if child := os.fork():
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)  # noqa: T201 - the answer
            continue
        for number, path in (1, request["out"]), (2, request["err"]):
            os.dup2(os.open(path, os.O_WRONLY), number)
        os.chdir(request["cwd"])
        sys.argv = ["-c", *request["arguments"]]
        exec(request["code"], {"__name__": "__main__"})  # noqa: S102 - a test's own code
        break


if __name__ == "__main__":
    _serve()
