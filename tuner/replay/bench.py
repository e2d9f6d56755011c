"""A workbench with the trainer and the devices of a recorded table."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tuner.kept.identity import RECORDED
from tuner.probe.metrics import check_metrics
from tuner.probe.plan import Device, ProbePlan, Slot
from tuner.probe.result import DeviceSample
from tuner.replay.table import Table
from tuner.study.cases import Case
from tuner.study.load import load, narrowed
from tuner.study.space import PATIENCE, Config, config_digest
from tuner.trainers.base import STANDARD, Trainer
from tuner.workbench import Workbench


def replay_bench(table: Table, study: str, *, runs: Path = Path("runs")) -> Workbench:
    """Open a study on a table: space, case and devices come from the table, everything else from the study.

    Only the configs that the table has a result for are searched. A study that searches `pruner_patience` still does.
    Raises StudyError where the study cannot be used.
    """
    spec, header = load(study, fall_back=False), table.header
    check_metrics(spec)
    spec = narrowed(spec, header.case, "gpu" if header.devices[0].is_gpu else "cpu")
    patience = {PATIENCE: spec.space[PATIENCE]} if PATIENCE in spec.space else {}
    space = {**header.space, **patience}
    return Workbench(
        spec=spec.model_copy(update={"space": space, "cases": (header.case,), "overrides": ()}),
        asked_for=study,
        trainer=TableTrainer(table),
        source=TableSource(table),
        folder=(runs / f"{spec.name}-replay").resolve(),
        variables={},
        holds=table.holds,
    )


class TableTrainer(Trainer):
    """The trainer of a table: the recorded case, the recorded parameters, and plans that nobody runs."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.name = table.header.trainer["name"]
        self.accepts = frozenset(table.header.space)

    @property
    def declines(self) -> Mapping[str, str]:
        """The standard parameters that the table does not vary."""
        return {name: "the table does not vary it" for name in STANDARD if name not in self.accepts}

    def cases(self) -> list[Case]:
        """Return the one recorded case."""
        header = self._table.header
        return [Case(name=header.case, options=header.files, files=tuple(header.files))]

    def plan(self, case: Case, config: Config, slot: Slot) -> ProbePlan:
        """Return a plan that names the row to look up; its command is never run."""
        return ProbePlan(
            config=config,
            argv=("replay", case.name, json.dumps(config), *(device.name for device in slot.devices)),
            cwd=slot.out_dir,
            env=dict(slot.variables),
            files={},
            slot=slot,
            session_key=self.session_key(case, config) or "/".join((self.name, case.name, config_digest(config))),
            base_agent=case.options.get("agent_config", ""),
        )

    def session_key(self, case: Case, config: Config) -> str | None:
        """Return the key of the session in which the config was recorded; None where it was no session."""
        row = self._table.find(config)
        return row.session_key if row and row.result.config.items() <= config.items() else None

    def warm_plan(self, case: Case, config: Config, slot: Slot) -> ProbePlan | None:
        """Return a plan for the same row in its session; None where the row was recorded without a session."""
        key = self.session_key(case, config)
        if key is None:
            return None
        request = {"config": config, "iterations": slot.limits.most_iterations}
        return replace(self.plan(case, config, slot), argv=("replay", key), request=request)

    def fingerprint(self) -> dict[str, str]:
        """Return the recorded trainer's fingerprint with the date of the recording."""
        return {**self._table.header.trainer, RECORDED: self._table.header.date}


class TableSource:
    """The devices that a table was recorded on; their samples have no values."""

    def __init__(self, table: Table) -> None:
        self.label = table.header.source
        self.devices: tuple[Device, ...] = table.header.devices

    def attach(self, pid: int) -> None:
        """Do nothing: no process runs."""

    def sample(self, t_s: float) -> Sequence[DeviceSample]:
        """Return samples without values."""
        return [DeviceSample(t_s=t_s, device=device) for device in range(len(self.devices))]
