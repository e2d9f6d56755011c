"""The workloads as the tuner sees them: a trainer whose cases are the workloads."""

import sys
from dataclasses import replace

from tuner.errors import TrainerError
from tuner.probe.probe_plan import ProbePlan, Slot
from tuner.scaling.workloads.catalogue import CATALOGUE, EXCHANGE, SIZE, run_settings
from tuner.study import Case, Config, TrainerSpec
from tuner.trainers.base import Dependencies, Trainer, device_names, interpreter, iterations, with_torch


class WorkloadTrainer(Trainer):
    """The built-in workloads. One session serves runs of all of them, so that its start is paid once."""

    name = "workload"
    accepts = frozenset({SIZE, EXCHANGE})

    def __init__(self, spec: TrainerSpec) -> None:
        """Take the study's `trainer` part; there are no options."""
        super().__init__(spec)
        self._python = interpreter(spec.python or sys.executable)

    @property
    def dependencies(self) -> Dependencies:
        """The modules that the workloads import."""
        return Dependencies(python=self._python, modules=("tuner", "torch"))

    @property
    def counts_samples(self) -> bool:
        """Every workload reports its samples."""
        return True

    def cases(self) -> list[Case]:
        """List the workloads."""
        return [Case(name=name, method=name) for name in CATALOGUE]

    def plan(self, case: Case, config: Config, slot: Slot) -> ProbePlan:
        """Decide one run. Raises TrainerError for an unknown workload or a value that it cannot use."""
        if case.name not in CATALOGUE:
            raise TrainerError(f"workload {case.name!r} is unknown; known: {', '.join(CATALOGUE)}")
        settings = run_settings(case.name, config, iterations=iterations(slot))
        return ProbePlan(
            config=config,
            argv=(
                *self._command(slot),
                *("--workload", case.name, "--size", str(settings.size)),
                *(() if settings.exchange else ("--apart",)),
                *(() if slot.to_train else ("--iterations", str(settings.iterations))),
            ),
            cwd=slot.out_dir,
            env={**slot.variables, "TUNER_PROGRESS": str(slot.progress)},
            files={},
            slot=slot,
            session_key=self.session_key(case, config),
        )

    def session_key(self, case: Case, config: Config) -> str:
        """Share one session between all workloads and sizes."""
        return self.name

    def warm_plan(self, case: Case, config: Config, slot: Slot) -> ProbePlan:
        """Decide the same run in a session. Raises as `plan` does."""
        return replace(
            self.plan(case, config, slot),
            argv=self._command(slot),
            request={"workload": case.name, "config": dict(config), "iterations": iterations(slot)},
        )

    def fingerprint(self) -> dict[str, str]:
        """Return the name of the trainer."""
        return {"name": self.name}

    def _command(self, slot: Slot) -> tuple[str, ...]:
        return (
            *(with_torch(self._python), "-m", "tuner.scaling.workloads"),
            *("--devices", *device_names(slot.devices)),
            *("--master-port", str(slot.port)),
        )
