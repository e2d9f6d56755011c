"""Runs scripts in forks of a process that has imported torch, because that import takes seconds.

A line on the standard input names a script and a folder. The script runs with counting; what it prints goes to `output`
in the folder, and its exit code to the standard output.
"""

import gc
import os
import runpy
import sys
import traceback
from pathlib import Path

import torch
import torch._dynamo.utils


def run(script: str, folder: Path) -> None:
    """Run a script as the main program of this process, and end the process with its exit code."""
    os.environ["TUNER_COUNT"] = str(folder)
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    torch.manual_seed(0)
    code = 1
    try:
        runpy.run_path(script, run_name="__main__")
        code = 0
    finally:
        if code:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Fork for each line."""
    torch.set_num_threads(1)
    torch.compile(torch.abs, backend="eager")(torch.ones(1))  # each process would import again what this imports
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    gc.freeze()  # what torch holds is no module of a training, and takes long to look through
    for line in sys.stdin:
        script, folder = line.split()
        child = os.fork()
        if not child:
            run(script, Path(folder))
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
