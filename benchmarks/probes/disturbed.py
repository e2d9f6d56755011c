"""Measures one training again and again beside other programs, and writes what each reading tells and what is true.

    python -m benchmarks.probes.disturbed OUT.jsonl --seconds 450 --seed 0

Between 0 and 4 processes that only compute run beside the training. Their number changes every 20 to 60 s, so that
readings in a row share a disturbance. Each step prints its own seconds on the processor, which no wait prolongs.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tuner.devices.cpu import CpuSource
from tuner.probe import Answer, Next, ProbePlan, Slot
from tuner.probe.probe_plan import LinePatterns
from tuner.running.prober import prober_on, run_in
from tuner.search.verdict import next_answer
from tuner.study import ProbeSpec

TRAINER = """
import time
for step in range(10**9):
    begin_s = time.thread_time()
    total = 0
    for number in range(LOOPS):
        total += number
    cpu_s = time.thread_time() - begin_s
    time.sleep(SLEEP_S)
    print(f"step {step} cpu {cpu_s:.6f}", flush=True)
"""
CONFIGS = ((800_000, 0.0), (400_000, 0.0), (400_000, 0.04))
"""The loops of a step, and the seconds that it sleeps then. The configs are measured in turns."""
LOAD = "while True: pass"
LIMITS = ProbeSpec(window_seconds=3.0, max_seconds=9.0)


def main() -> None:
    """Measure until the time is over; write a line of JSON after each reading."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=450.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--load", type=int, default=4, help="the most processes that compute beside the training")
    args = parser.parse_args()
    draw = random.Random(args.seed)
    source = CpuSource(1)
    prober = prober_on(source)
    load: list[subprocess.Popen[bytes]] = []
    end_s, change_s = time.monotonic() + args.seconds, 0.0
    objectives = ("samples_per_s",)
    try:
        with TemporaryDirectory() as folder:
            for number in range(10_000):
                now_s = time.monotonic()
                if now_s > end_s:
                    return
                if now_s > change_s:
                    while load:
                        load.pop().kill()
                    load = [subprocess.Popen([sys.executable, "-c", LOAD]) for _ in range(draw.randint(0, args.load))]
                    change_s = now_s + draw.uniform(20.0, 60.0)
                loops, sleep_s = CONFIGS[number % len(CONFIGS)]
                slot = Slot(devices=source.devices, out_dir=Path(folder) / f"{number}", limits=LIMITS)
                result = run_in(
                    slot,
                    lambda slot: ProbePlan(
                        config={},
                        argv=(
                            sys.executable,
                            "-c",
                            TRAINER.replace("LOOPS", str(loops)).replace("SLEEP_S", str(sleep_s)),
                        ),
                        cwd=Path(folder),
                        env={},
                        files={},
                        slot=slot,
                        session_key="",
                        progress=LinePatterns(patterns=(r"step (?P<iteration>\d+) cpu",), samples_per_iteration=1.0),
                    ),
                    lambda plan: prober(
                        plan, lambda so_far: next_answer(so_far, objectives, LIMITS) if so_far else Answer(Next.GO)
                    ),
                )
                console = (Path(folder) / f"{number}" / "console.log").read_text()
                steps_s = [float(line.split()[-1]) for line in console.splitlines() if " cpu " in line][1:]
                device = result.devices[0] if result.devices else None
                row = {
                    "t_s": now_s,
                    "load": len(load),
                    "loops": loops,
                    "sleep_s": sleep_s,
                    "speed": result.samples_per_s,
                    "error": result.samples_per_s_se,
                    "delayed": device and device.delayed_mean_pct,
                    "others": device and device.others_mean_pct,
                    "cpu_speed": len(steps_s) / sum(steps_s) if steps_s else None,
                    "window_s": result.window_s,
                    "failure": result.failure and result.failure.detail,
                }
                with args.out.open("a") as rows:
                    rows.write(json.dumps(row) + "\n")
    finally:
        for process in load:
            process.kill()


if __name__ == "__main__":
    main()
