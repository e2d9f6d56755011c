"""MimicKit as a trainer."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tuner.errors import TrainerError
from tuner.probe import LinePatterns, ProbePlan, Slot
from tuner.study import LADDER, VARIANT, Case, Config, Strict, TrainerSpec, Value, escaped
from tuner.trainers import base
from tuner.trainers.mimickit import checkout
from tuner.trainers.presets import PRESETS

DRIVER = Path(__file__).with_name("driver.py")
"""The script that serves sessions."""


class MimicKitOptions(Strict):
    """The keys that `trainer.options` may have."""

    engine_config: str = ""
    """The engine file that replaces the one named in the case's argument file; relative to the root."""
    score_row: str = ""
    """The row of the printed table that holds the score of a race; empty for `Test_Return` or `Mean_Return`."""


class MimicKitTrainer(base.Trainer):
    """Launches the cases of a MimicKit checkout; it starts its own ranks, one per device."""

    name = "mimickit"
    loads_data = False
    accepts = frozenset({LADDER, VARIANT, checkout.EPOCHS, checkout.BATCH_SIZE})

    def __init__(self, spec: TrainerSpec) -> None:
        """Take the study's `trainer` part. Raises TrainerError for an option that is unknown or cannot be used."""
        super().__init__(spec)
        self._options = base.checked_options(MimicKitOptions, spec)
        self._python = base.interpreter(spec.python or "python3")
        patterns = PRESETS["mimickit"].progress  # for rows of the table that rank 0 prints once per iteration
        if row := self._options.score_row:  # in place of the usual score, whose pattern is the last
            patterns = (*patterns[:-1], rf"\|\s+{re.escape(row)}\s+\|\s+(?P<return>\S+)\s+\|")
        self._progress = LinePatterns(patterns=patterns)
        self.score_source = self._options.score_row
        self.dependencies = checkout.dependencies(self._python, self._options.engine_config)

    @property
    def declines(self) -> Mapping[str, str]:
        """The parameters of a DataLoader → that MimicKit has none."""
        return dict.fromkeys(("num_workers", "prefetch_factor"), "mimickit has no DataLoader")

    def cases(self) -> list[Case]:
        """Return the case of every argument file, with the engine that it would run on.

        Raises TrainerError when the root is no checkout of MimicKit. A case with an unusable file says so itself.
        """
        root, engine = checkout.checkout_at(self._spec.root), self._options.engine_config
        if engine and not (root / engine).is_file():
            problem = f"trainer.options.engine_config: {root} has no file {engine}"
            raise TrainerError(f"{problem}; name a file below this root")
        cases = checkout.cases(root)
        return [replace(case, options={**case.options, "engine_config": self._engine(case)}) for case in cases]

    def check_value(self, parameter: str, value: Value) -> None:
        """Raise TrainerError for a value that no agent file can take."""
        checkout.check_value(parameter, value)

    def plan(self, case: Case, config: Config, slot: Slot) -> ProbePlan:
        """Return the plan of one probe: MimicKit's own command line, with an agent file that has the config's values.

        Raises TrainerError where the case's agent file cannot be used with this config.
        """
        root = checkout.checkout_at(self._spec.root)
        base_agent = case.options["agent_config"]
        if case.fault or not base_agent:
            raise TrainerError(f"case {case.name}: {case.fault or 'it is no training'}")
        shipped = checkout.file_text(root / base_agent)
        agent_file, train_dir = slot.out_dir / "agent.yaml", slot.out_dir / "train"
        envs = base.num_envs(self.name, config) * len(slot.devices)
        samples_per_iter = envs * checkout.steps_per_iter(shipped, base_agent)
        probe_words = (
            *("--logger", "txt"),  # a probe is not reported to the experiment tracker that a case may name
            *("--max_samples", str(samples_per_iter * base.iterations(slot))),
        )
        return ProbePlan(
            config=config,
            argv=_literal(
                *(self._python, "mimickit/run.py"),
                *self._env_arguments(case, config, slot),
                *("--agent_config", str(agent_file)),
                *("--mode", "train"),
                *(("--rand_seed", str(slot.seed)) if slot.seed is not None else ()),
                *(() if slot.to_train else probe_words),
                *("--out_dir", str(train_dir)),
            ),
            cwd=root,
            env={"PYTHONUNBUFFERED": "1", **slot.variables},
            programs=base.program_folder(self._spec.python),
            files={agent_file: checkout.adapted_agent(shipped, config, base_agent)},
            slot=slot,
            progress=self._progress,
            expected=(train_dir / "model.pt", train_dir / "log.txt"),
            session_key=self.session_key(case, config),
            base_agent=base_agent,
            agent_config=str(agent_file),
        )

    def session_key(self, case: Case, config: Config) -> str:
        """Return the name of the session with this config's environment: configs with other agents may share it.

        Raises as `plan` does.
        """
        return "/".join((self.name, case.name, self._engine(case), str(base.num_envs(self.name, config))))

    def warm_plan(self, case: Case, config: Config, slot: Slot) -> ProbePlan:
        """Return the plan of the same probe as one run of a session that `driver.py` serves. Raises as `plan` does."""
        cold = self.plan(case, config, slot)
        return replace(
            cold,
            argv=_literal(self._python, str(DRIVER), *self._env_arguments(case, config, slot)),
            progress=LinePatterns(),
            expected=(),
            request={
                **self.request(config, base.iterations(slot)),
                "thin": slot.limits.thin,  # whether the driver makes only a share of the updates
                "agent_config": cold.agent_config,
                "out_dir": str(slot.out_dir / "train"),
            },
        )

    def ladder_end(self, case: Case) -> base.LadderEnd | None:
        """Return how many environments fit into the replay buffer of the case's agent.

        None for an agent without such a buffer, and for an unusable agent file, which `plan` reports.
        """
        base_agent = case.options["agent_config"]
        try:
            return checkout.ladder_end(
                checkout.file_text(checkout.checkout_at(self._spec.root) / base_agent), base_agent
            )
        except TrainerError:
            return None

    def fingerprint(self) -> dict[str, str]:
        """Return what comparable results share: MimicKit, and the simulator if the study sets it."""
        return {"name": self.name, "engine_config": self._options.engine_config}

    def _env_arguments(self, case: Case, config: Config, slot: Slot) -> tuple[str, ...]:
        """Return the arguments for the environments of MimicKit, which it builds on each device before an agent."""
        return (
            *("--arg_file", case.options["arg_file"]),
            *("--engine_config", self._engine(case)),
            *("--visualize", "false"),
            *("--devices", *base.device_names(slot.devices)),
            *("--master_port", str(slot.port)),
            *("--num_envs", str(base.num_envs(self.name, config))),
        )

    def _engine(self, case: Case) -> str:
        """Return the engine file of the study, or else that of the case."""
        return self._options.engine_config or case.options["engine_config"]


def _literal(*words: str) -> tuple[str, ...]:
    """Return literal words as texts with references: what looks like a reference is escaped."""
    return tuple(map(escaped, words))
