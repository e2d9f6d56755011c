"""A trainer of your own: `walkers.yaml` beside this file names it as `walkers:WalkersTrainer`.

It launches `train.py`, whose tasks are named as those of Isaac Lab are. The methods that are missing here have defaults
in `tuner.trainers.base.Trainer`.
"""

import sys
from pathlib import Path

from tuner.probe.probe_plan import ProbePlan, Slot
from tuner.study.cases import Case
from tuner.study.space import Config
from tuner.trainers.base import Trainer

HERE = Path(__file__).parent


class WalkersTrainer(Trainer):
    """Launches `train.py` with `num_envs` environments on each device."""

    name = "walkers"
    accepts = frozenset({"num_envs"})

    def cases(self) -> list[Case]:
        """List two tasks; both have the same method and the same robot, so each begins with what the other found."""
        tasks = ("Isaac-Velocity-Flat-G1-v0", "Isaac-Velocity-Rough-G1-v0")
        return [
            Case(name=task, method="velocity", robot=("G1",), files=("terrain",), options={"terrain": f"{task}.usd"})
            for task in tasks
        ]

    def plan(self, case: Case, config: Config, slot: Slot) -> ProbePlan:
        """Write the command line of one probe; `train.py` stops by itself only where it is to be measured."""
        limit = () if slot.to_train else ("--iterations", str(slot.limits.most_iterations))
        envs, ranks = str(config["num_envs"]), str(len(slot.devices))
        return ProbePlan(
            config=config,
            argv=(sys.executable, "train.py", "--task", case.name, "--envs", envs, "--ranks", ranks, *limit),
            cwd=HERE,
            env={**slot.variables, "TUNER_PROGRESS": str(slot.progress)},
            files={},
            slot=slot,
            session_key=f"{self.name}/{case.name}/{envs}",
        )

    def fingerprint(self) -> dict[str, str]:
        """Results compare whatever the options are: this trainer has none."""
        return {"name": self.name}
