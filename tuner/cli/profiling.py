"""Wraps a command to train with, so that half a minute of it is profiled: by Nsight Systems, or by torch's profiler."""

import os
from dataclasses import replace

from tuner.probe.probe_plan import ProbePlan

DELAY_S, LENGTH_S = 60, 30
"""What is left out first, such as imports and compilation; how long the profile is."""

_STARTED_BY_PYTHON = """\
# Python itself imports this file at its start. In a process that trains, torch's profiler then sees some seconds.
import os, sys, threading, time

def record(delay_s={delay}, length_s={length}, folder={folder!r}):
    while "torch" not in sys.modules:
        time.sleep(0.1)
    from torch import profiler
    time.sleep(delay_s)
    everywhere = profiler._ExperimentalConfig(profile_all_threads=True)
    with profiler.profile(experimental_config=everywhere) as seen:
        time.sleep(length_s)
    trace = os.path.join(folder, "trace_rank%s_%d.json" % (os.environ.get("RANK", "0"), os.getpid()))
    seen.export_chrome_trace(trace + ".part")
    os.replace(trace + ".part", trace)

threading.Thread(target=record, daemon=True).start()
"""


def profiled(plan: ProbePlan, *, nsys: str | None, delay_s: float = DELAY_S, length_s: float = LENGTH_S) -> ProbePlan:
    """Return the plan with a profiler around or inside its command; the training goes on after the profile.

    With Nsight Systems, the program `nsys`, `profile.nsys-rep` appears in the plan's folder. Otherwise each process
    that imports torch writes a `trace_….json` there, for Perfetto or Chrome's tracing.
    """
    folder = plan.slot.out_dir
    if nsys:
        options = ("--trace=cuda,nvtx,osrt", f"--delay={delay_s}", f"--duration={length_s}", "--kill=none")
        return replace(plan, argv=(nsys, "profile", *options, f"--output={folder / 'profile'}", *plan.argv))
    start = folder / "profiler" / "sitecustomize.py"
    text = _STARTED_BY_PYTHON.format(delay=delay_s, length=length_s, folder=str(folder))
    known = plan.env.get("PYTHONPATH") or os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(start.parent), *([known] if known else [])])
    return replace(plan, files={**plan.files, start: text}, env={**plan.env, "PYTHONPATH": path})
