"""What memory a torch training would take, before its first run: its own command with tensors that have no data."""

import json
import os
from dataclasses import replace

from tuner.count.launching import INSIDE
from tuner.errors import TrainerError
from tuner.probe import MonotonicClock, ProbePlan, Process, mib
from tuner.search.resource_model import Interval
from tuner.study import escaped

CONTEXT_MIB = 600.0
"""What CUDA and its libraries hold on a card beside all tensors."""
USUAL, LOW, HIGH = 1.05, 0.95, 1.25
"""What the allocator takes from the card for each byte of tensors at their peak: usually, and from 5 to 95 %."""
LIMIT_S = 180.0
"""The longest run: what takes longer computes with real data."""


def foretold(plan: ProbePlan, limit_s: float = LIMIT_S) -> Interval:
    """Return the MiB of a card that a plan's command would take, with an interval for 90 of 100 trainings.

    The command is started without a card, in the trainer's own Python, and ends with its second optimizer step.
    Raises TrainerError where it makes none, with its last line, and the errors of `Process`.
    """
    answer, clock = plan.slot.out_dir / "foretold.json", MonotonicClock()
    path = os.pathsep.join(filter(None, [str(INSIDE), plan.environment(os.environ).get("PYTHONPATH")]))
    variables = {"PYTHONPATH": escaped(path), "TUNER_PREDICT": escaped(str(answer)), "CUDA_VISIBLE_DEVICES": ""}
    process = Process(replace(plan, env={**plan.env, **variables}, is_counted=False), clock)
    last, end_s = "it says nothing", clock.now() + limit_s
    try:
        while process.exit_code() is None and clock.now() < end_s:
            last = next((line.text for line in reversed(process.lines(0.2)) if line.text.strip()), last)
        last = next((line.text for line in reversed(process.lines(0.0)) if line.text.strip()), last)
    finally:
        process.end()
    try:
        peak_mib = mib(json.loads(answer.read_text(encoding="utf-8"))["peak_bytes"])
    except (OSError, ValueError, KeyError) as error:
        raise TrainerError(f"no second optimizer step with tensors that have no data: {last.strip()}") from error
    mean, low, high = (CONTEXT_MIB + share * peak_mib for share in (USUAL, LOW, HIGH))
    return Interval(mean=mean, low=low, high=high)
