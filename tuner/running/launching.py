"""The one way to run a probe: reserve a folder and a port, plan, run."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from tuner.probe.out_dir import reserved_out_dir
from tuner.probe.plan import ProbePlan, Slot
from tuner.probe.port import reserved_port

Outcome = TypeVar("Outcome")


def run_in(slot: Slot, plan: Callable[[Slot], ProbePlan], run: Callable[[ProbePlan], Outcome]) -> Outcome:
    """Plan a probe and run it; return what `run` returns.

    The probe gets a free port, and the folder `slot.out_dir`, or one beside it if that exists. Both are reserved until
    the probe has ended. Raises OutputError where the folder cannot be made, and the errors of `plan` and `run`.
    """
    with reserved_out_dir(slot.out_dir) as out_dir, reserved_port() as port:
        return run(plan(replace(slot, out_dir=out_dir, port=port)))
