"""What memory a torch training would take, before its first run: its own command with tensors that have no data."""

import json
import os
from dataclasses import replace

from tuner.count.launching import path_inside
from tuner.errors import TrainerError
from tuner.probe import MonotonicClock, ProbePlan, Process, mib
from tuner.study import escaped

CONTEXT_MIB = 810.0
"""What a card holds beside tensors: 768 MiB of CUDA and its libraries, and the workspaces of matrix products.

Source: `benchmarks.memory.without_run` on an H200 (torch 2.11, CUDA 13), the median of four models.
"""
MOST_S = 180.0
"""The seconds that the command may take (chosen): one that takes longer computes with real data."""
LEAST_SHARE = 0.97
"""The least of what a training takes, as a share of what is predicted.

Source: as above; with `LARGEST_SHARE` it held 45 of 48 trainings, which were known when both were chosen.
"""
LARGEST_SHARE = 1.10
"""The most of what a training takes, as a share of what is predicted. Source: as above."""


def predicted_mib(plan: ProbePlan) -> float:
    """Return about how many MiB of a card a plan's command would take.

    The command starts without a card, in the trainer's own Python. Modules of ours on its path give tensors no data.
    They end it after its second optimizer step, and write to a file what its tensors would take. It sees the plan's
    card, or an H100 of 80 GiB where the card is unknown: a SLURM job may get any.
    Raises TrainerError with the command's last line where it makes no second step, and the errors of `Process`.
    """
    file, clock = plan.slot.out_dir / "predicted.json", MonotonicClock()
    path = path_inside(plan.environment(os.environ))
    device = plan.slot.devices[0]
    card = f"{device.mem_total_mib:.0f} {device.model}" if device.mem_total_mib else f"{80 * 1024} NVIDIA H100"
    variables = {"PYTHONPATH": path, "TUNER_PREDICT": str(file), "TUNER_CARD": card, "CUDA_VISIBLE_DEVICES": ""}
    variables = {name: escaped(value) for name, value in variables.items()}  # a plan expands references such as ${A}
    process = Process(replace(plan, env={**plan.env, **variables}, is_counted=False), clock)
    last_line, has_ended = "it says nothing", False
    end_s = clock.now() + MOST_S
    try:
        while not has_ended:
            has_ended = process.exit_code() is not None or clock.now() >= end_s
            last_line = next((line.text for line in reversed(process.lines(0.2)) if line.text.strip()), last_line)
    finally:
        process.end()
    try:
        return CONTEXT_MIB + mib(json.loads(file.read_text(encoding="utf-8"))["taken_bytes"])
    except (OSError, ValueError, KeyError) as error:
        raise TrainerError(f"no second optimizer step with tensors that have no data: {last_line.strip()}") from error
