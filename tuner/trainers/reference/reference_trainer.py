"""The bundled reference trainer as a trainer of studies."""

import sys
from contextlib import suppress
from dataclasses import replace

from tuner.errors import ConfigRefusedError, TrainerError
from tuner.probe import ProbePlan, Slot
from tuner.study import LADDER, VARIANT, Case, Config, PositiveInt, Strict, TrainerSpec, Value, value_text
from tuner.trainers.base import Dependencies, Trainer, checked_options, interpreter, iterations, num_envs, own_plan
from tuner.trainers.reference import launch_settings as launch


class ReferenceOptions(Strict):
    """The keys that `trainer.options` may have."""

    env_mib: PositiveInt | None = None
    """The memory in MiB that each environment holds besides its samples; None for none."""


class ReferenceTrainer(Trainer):
    """The trainer that ships with the package."""

    name = "reference"
    accepts = frozenset({LADDER, *launch.RunConfig.model_fields})
    spans_nodes = True

    def __init__(self, spec: TrainerSpec) -> None:
        """Take the study's `trainer` part. Raises TrainerError for an option it does not know or cannot use."""
        super().__init__(spec)
        self._options = checked_options(ReferenceOptions, spec)
        self._python = interpreter(spec.python or sys.executable)
        self.dependencies = Dependencies(python=self._python, modules=("tuner", "numpy", "torch"))

    def cases(self) -> list[Case]:
        """Return the three pi_plus cases."""
        files = {"env_config": "reference/pi_plus.env", "engine_config": "reference/pd.engine"}
        return [
            Case(name=name, options={"agent_config": f"reference/{method}.agent", **files})
            for name, method in launch.CASES.items()
        ]

    def check_value(self, parameter: str, value: Value) -> None:
        """Raise TrainerError for a value that no config may have."""
        with suppress(ConfigRefusedError):  # this value needs a value of another parameter
            launch.run_config({parameter: value})  # called for its TrainerError

    def plan(self, case: Case, config: Config, slot: Slot) -> ProbePlan:
        """Return the plan of one run. Raises TrainerError for an unknown case, and for a value that cannot be used."""
        if case.name not in launch.CASES:
            problem = f"case {case.name!r} is unknown to the reference trainer"
            raise TrainerError(f"{problem}; it knows {', '.join(launch.CASES)}")
        out_dir = slot.out_dir / "train"
        launch.run_config(config)  # called for its TrainerError
        parameters = [name for name in launch.RunConfig.model_fields if name in config]
        words = (
            *(word for name in parameters for word in (launch.option(name), value_text(config[name]))),
            *(() if slot.to_train else ("--iterations", str(iterations(slot)))),
            *("--out-dir", str(out_dir)),
        )
        planned = self._planned("tuner.trainers.reference", case, config, slot, *words)
        return replace(planned, expected=(out_dir / "model.pt", out_dir / "log.txt"))

    def session_key(self, case: Case, config: Config) -> str:
        """Return the name of the session: one started trainer runs all configs with as many environments.

        With another number of environments, a config has its own session. So the memory that it takes does not depend
        on what a run with more environments left behind.
        """
        return "/".join((self.name, case.name, str(_num_envs(config))))

    def warm_plan(self, case: Case, config: Config, slot: Slot) -> ProbePlan:
        """Return the plan of the same run in a session, which leaves no files. Raises as `plan` does."""
        self.plan(case, config, slot)  # raises for a value that the trainer cannot use
        planned = self._planned("tuner.trainers.reference.serve", case, config, slot)
        return replace(planned, request=self.request(config, iterations(slot)))

    def fingerprint(self) -> dict[str, str]:
        """Return the name of the trainer and the options that are set."""
        return {"name": self.name, **{option: str(value) for option, value in self._options if value is not None}}

    def _planned(self, module: str, case: Case, config: Config, slot: Slot, *words: str) -> ProbePlan:
        """Return the plan of a run or a session; `words`: the arguments that only a run has."""
        planned = own_plan(
            self._python,
            (module, "--case", case.name),
            config,
            slot,
            *("--num-envs", str(_num_envs(config))),
            *(("--seed", str(slot.seed)) if slot.seed is not None else ()),
            *(("--env-mib", str(self._options.env_mib)) if self._options.env_mib else ()),
            *words,
            session_key=self.session_key(case, config),
        )
        agent, variant = f"reference/{case.method}", config.get(VARIANT, "default")
        return replace(planned, base_agent=f"{agent}.default", agent_config=f"{agent}.{variant}")


def _num_envs(config: Config) -> int:
    """Return the environments per device."""
    return num_envs(ReferenceTrainer.name, config, usual=1024)
