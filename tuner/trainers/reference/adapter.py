"""The reference trainer as the tuner sees it: its cases, what it can vary, and its command line."""

import sys
from collections.abc import Mapping

from tuner.errors import TrainerError
from tuner.probe.plan import ProbePlan, Slot
from tuner.study.cases import Case
from tuner.study.space import LADDER, VARIANT, Config
from tuner.study.spec import TrainerSpec
from tuner.trainers.dependencies import Dependencies
from tuner.trainers.reference.agent import CASES, agent_settings, default_hidden_units, whole

SPARE_ITERATIONS = 2
"""Run beyond what a probe measures: the tuner ends a probe itself, a command run by hand ends by this count."""


class ReferenceTrainer:
    """The trainer that ships with the package; its one option is `hidden_units`, the width of hidden layers."""

    name = "reference"
    accepts = frozenset({LADDER, VARIANT, "update_epochs", "batch_size", "num_workers", "prefetch_factor"})
    declines: Mapping[str, str] = {}

    def __init__(self, spec: TrainerSpec) -> None:
        """Take the study's `trainer` part. Raises TrainerError for an option it does not know or cannot use."""
        unknown = sorted(set(spec.options) - {"hidden_units"})
        if unknown:
            raise TrainerError(f"trainer.options: {', '.join(unknown)} unknown to reference; it takes hidden_units")
        if "hidden_units" in spec.options:
            whole(spec.options, "hidden_units", default=1)
        self._python = spec.python or sys.executable
        self._options = dict(spec.options)
        self.dependencies = Dependencies(python=self._python, modules=("tuner", "numpy", "torch"))

    def cases(self) -> list[Case]:
        """List the three pi_plus cases."""
        return [Case(name=name, options=_labels(method)) for name, method in CASES.items()]

    def plan(self, case: Case, config: Config, slot: Slot) -> ProbePlan:
        """Decide one run. Raises TrainerError for an unknown case or a value that the trainer cannot use."""
        if case.name not in CASES:
            raise TrainerError(f"case {case.name!r} is unknown to the reference trainer; it knows {', '.join(CASES)}")
        devices = tuple(device.name if device.is_gpu else "cpu" for device in slot.devices)
        num_envs = whole(config, LADDER, default=1024)
        out_dir = slot.out_dir / "train"
        return ProbePlan(
            config=config,
            argv=(
                *(self._python, "-m", "tuner.trainers.reference"),
                *("--case", case.name),
                *("--devices", *devices),
                *("--master-port", str(slot.port)),
                *("--num-envs", str(num_envs)),
                *self._agent_arguments(config, devices[0]),
                *_loader_arguments(config),
                *("--iterations", str(slot.limits.most_iterations + SPARE_ITERATIONS)),
                *("--out-dir", str(out_dir)),
            ),
            cwd=slot.out_dir,
            env={**slot.variables, "TUNER_PROGRESS": str(slot.progress)},
            files={},
            slot=slot,
            expected=(out_dir / "model.pt", out_dir / "log.txt"),
            session_key="/".join((self.name, case.name, str(num_envs), ",".join(devices))),
            base_agent=f"reference/{case.method}.default",
            agent_config=f"reference/{case.method}.{config.get(VARIANT, 'default')}",
        )

    def fingerprint(self) -> dict[str, str]:
        """Name the trainer and the options given."""
        return {"name": self.name, **{option: str(value) for option, value in sorted(self._options.items())}}

    def _agent_arguments(self, config: Config, device: str) -> tuple[str, ...]:
        hidden_units = whole(self._options, "hidden_units", default=default_hidden_units(device))
        agent = agent_settings(config, hidden_units=hidden_units)
        return (
            *("--hidden-layers", str(agent.hidden_layers)),
            *("--hidden-units", str(agent.hidden_units)),
            *("--update-epochs", str(agent.update_epochs)),
            *("--batch-size", str(agent.batch_size)),
        )


def _labels(method: str) -> dict[str, str]:
    return {
        "agent_config": f"reference/{method}.agent",
        "env_config": "reference/pi_plus.env",
        "engine_config": "reference/pd.engine",
    }


def _loader_arguments(config: Config) -> tuple[str, ...]:
    workers = ("--num-workers", str(whole(config, "num_workers", default=0, least=0)))
    if "prefetch_factor" not in config:
        return workers
    return (*workers, "--prefetch-factor", str(whole(config, "prefetch_factor", default=2)))
