"""A study with everything that it works with: its file, trainer, devices and folder.

A case is one training of the study. A ladder is the parameter that decides memory, such as the number of environments;
its values are its rungs. Where a ladder is `auto`, its rungs are worked out by small probes.
"""

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from tuner import study
from tuner.devices.found import describe_machine, launch_variables, open_devices
from tuner.errors import StudyError
from tuner.nodes.source import open_nodes
from tuner.probe import Device, DeviceSource, Slot, check_metrics, number_of
from tuner.records.case_record import FOLDER
from tuner.running.events import StudyStarted
from tuner.trainers.base import LadderEnd, Trainer
from tuner.trainers.registry import check_values, not_searched, open_trainer


@dataclass(frozen=True, kw_only=True, slots=True)
class Workbench:
    """A study with all that its probes need: trainer, devices, folder and variables; opened once, before any probe."""

    spec: study.StudySpec
    requested_study: str
    """The study as the user named it, by name or file; another than `spec` where the study's fallback is used."""
    trainer: Trainer
    source: DeviceSource
    folder: Path
    """The folder of this study's database, probes and exports; absolute."""
    variables: Mapping[str, str]
    """The environment variables of the trainer's processes: visible cards, NCCL settings, the study's own variables."""
    rungs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Case → the rungs of its `auto` ladder, where the rungs are fixed."""
    holds: Callable[[study.Config], bool] = study.allow_all
    """Returns whether a config can be measured at all; a replay can measure only those of its recorded table."""
    stored_as: str = ""
    """What follows the study's name in the database; a recording is stored beside the search of its study."""

    @property
    def stored_name(self) -> str:
        """The name of the study in the database."""
        return f"{self.spec.name}{self.stored_as}"

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that every probe runs on."""
        return self.source.devices

    @property
    def device_names(self) -> tuple[str, ...]:
        """The name and the model of each device."""
        return tuple(f"{device.name} {device.model}" for device in self.devices)

    @property
    def commit(self) -> str | None:
        """The commit of the trainer's checkout, with `-dirty` where files differ; None without such a checkout."""
        root, git = self.spec.trainer.root, shutil.which("git")
        if not root or git is None:
            return None
        describe = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
        command = [git, "-C", str(Path(root).expanduser()), *describe]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        return answer.stdout.strip() or None

    @property
    def facts(self) -> dict[str, str]:
        """What may change a speed beside the config: the machine, the trainer's commit, and its script with its folder.

        The kernel is left out, because each probe notes it.
        """
        facts = {name: fact for name, fact in describe_machine(self.source).items() if name != "kernel"}
        if commit := self.commit:
            facts["trainer"] = commit
        if (file := self.trainer.script) and (script := self.script_digest):
            facts |= {"script": script, FOLDER: str(file.resolve().parent)}
        return facts

    @property
    def script_digest(self) -> str | None:
        """The name and a digest of the file whose code trains; None if it is unknown."""
        file = self.trainer.script
        return file and f"{file.name} {sha256(file.read_bytes()).hexdigest()[:12]}"

    @property
    def kind(self) -> study.DeviceKind:
        """What the devices are."""
        return "gpu" if self.devices[0].is_gpu else "cpu"

    def spec_for(self, case: study.Case) -> study.StudySpec:
        """Return the study's settings for this case on these devices."""
        spec = study.narrowed(self.spec, case.name, self.kind)
        if spec.slurm.nodes > 1:  # requests reach no session there, whatever an override says
            spec = spec.model_copy(update={"probe": spec.probe.model_copy(update={"warm": False})})
        if len(spec.objectives) > 1:  # a pruner compares a single value
            spec = spec.model_copy(update={"pruner": spec.pruner.model_copy(update={"name": "none"})})
        return spec

    def space_for(self, case: study.Case) -> study.Space:
        """Return the space that is searched for a case.

        1. It lacks the parameters of `not_searched`.
        2. It lacks the configs that the study's rules or the trainer refuse, and those that a replay cannot measure.
        3. An `auto` ladder has the rungs that were worked out, or its doublings before that.
        4. Its ladder ends at the largest rung that the trainer can run: a replay buffer may hold no more, for example.

        Raises StudyError when no parameter or no config is left, TrainerError for a value that the trainer cannot use.
        """
        spec = self.spec_for(case)
        space = spec.build_space()
        left_out = not_searched(spec, self.trainer)  # 1
        searched = replace(space.restricted_to(set(space.names) - left_out.keys()), holds=self.holds)
        rules = spec.build_rules()  # 2
        refusal = self._refusal_of(rules)  # config → why a rule or the trainer refuses it, or None
        if rules or self.trainer.has_rules:
            searched = study.Space(
                tuple(self._without_refused_values(spec, parameter) for parameter in searched.parameters),
                holds=lambda config: self.holds(config) and refusal(config) is None,
            )
        if not searched.parameters:
            reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items())
            raise StudyError(
                f"nothing to search for {case.name}: every parameter is left out ({reasons}); add one to `space`"
            )
        check_values(self.trainer, searched.parameters)
        if searched.auto_bounds and case.name in self.rungs:  # 3
            searched = searched.with_rungs(self.rungs[case.name])
        if cut := self.ladder_end_for(case):  # 4
            searched = searched.up_to(cut.num_envs)
        if searched.example() is None:
            config = next(replace(searched, holds=study.allow_all).configs())  # any one, to quote why it is refused
            why = refusal(config) or "the recorded table does not have it"
            raise StudyError(f"nothing to search for {case.name}: no config can run; {config}: {why}")
        return searched

    def _refusal_of(self, rules: Sequence[study.Rule]) -> Callable[[study.Config], str | None]:
        """Return a function that says why a config cannot run, by a rule or the trainer; it returns None if it can."""
        ranks = len(self.devices)

        def refusal(config: study.Config) -> str | None:
            """Return why a config cannot run; None if it can."""
            values = {**config, study.RANKS: ranks}
            broken = next((rule for rule in rules if not rule.holds(values)), None)
            return f"the rule {broken.text!r} leaves it out" if broken else self.trainer.refusal(config, ranks)

        return refusal

    def _without_refused_values(self, spec: study.StudySpec, parameter: study.Parameter) -> study.Parameter:
        """Return a parameter with its possible values on these devices. Raises StudyError if no value is left."""
        name, ranks = parameter.name, len(self.devices)
        values = spec.possible(name, parameter.values, ranks)
        if not values:
            raise StudyError(f"the rules leave no value of {name} on {number_of(ranks, 'device')}")
        return replace(parameter, values=values, grown=spec.possible(name, parameter.grown, ranks))

    def ladder_end_for(self, case: study.Case) -> LadderEnd | None:
        """Return the largest rung that the trainer can run, with the reason; None if all rungs of the study can run.

        Raises StudyError when even the smallest rung is too large.
        """
        end = self.trainer.ladder_end(case)
        rungs = [rung for rung in self.spec_for(case).build_space().values(study.LADDER) if not isinstance(rung, str)]
        if end is None or not rungs or max(rungs) <= end.num_envs:
            return None
        if min(rungs) > end.num_envs:
            raise StudyError(
                f"no rung is left for {case.name}: the smallest is {min(rungs)}, and {self.trainer.name} can run "
                f"{study.LADDER} up to {end.num_envs}: {end.reason}; add a smaller rung"
            )
        return end

    def needs_calibration(self, case: study.Case) -> bool:
        """Return whether small probes must find the rungs of the `auto` ladder: this bench does not know them."""
        return case.name not in self.rungs and self.space_for(case).auto_bounds is not None

    def with_rungs(self, case: study.Case, rungs: tuple[int, ...]) -> "Workbench":
        """Return the bench with the rungs of the case's `auto` ladder."""
        return replace(self, rungs={**self.rungs, case.name: rungs})

    def started(self, cases: Sequence[study.Case]) -> StudyStarted:
        """Return the event with which the work on the study begins."""
        return StudyStarted(
            study=self.spec.name,
            trainer=self.trainer.name,
            cases=tuple(case.name for case in cases),
            devices=tuple(device.label for device in self.devices),
            objectives=self.spec.objectives,
        )

    def slot(self, case: study.Case, folder: str | Path, config: study.Config) -> Slot:
        """Return where a probe of a config runs: on which devices, and in `folder` below the study's folder.

        `run_in` reserves its port.
        """
        nodes = config.get(study.NODES)
        prices, models = self.spec.prices, [device.model for device in self.devices]
        return Slot(
            devices=self.devices,
            out_dir=self.folder / folder,
            limits=self.spec_for(case).probe,
            variables=self.variables,
            nodes=nodes if isinstance(nodes, int) else self.spec.slurm.nodes,
            price_per_hour=prices and study.price_of_all(prices, models, "`prices`"),
        )

    def study_name(self, case: study.Case) -> str:
        """Return the name of the case's study in the database."""
        return f"{self.stored_name}/{case.name}"

    def identity_for(self, case: study.Case) -> dict[str, Any]:
        """Return the settings that make trials of this case comparable; a resumed study must have the same.

        Rules, pruner, constraints and nodes stand in it only where the study has any.
        """
        spec = self.spec_for(case)
        optional = {
            "rules": list(spec.rules),
            "pruner": spec.pruner.model_dump(mode="json") if spec.pruner.name != "none" else None,
            "constraints": {bound.metric: str(bound) for bound in spec.build_constraints()},
            "nodes": spec.slurm.nodes if spec.slurm.nodes > 1 else None,
        }
        return {
            "space": study.described(self.space_for(case)),
            "trainer": self.trainer.fingerprint(),
            "variables": study.variables_without_keys(spec.environment.variables),
            "objective": spec.objective,
            "iterations": [spec.probe.warmup_iterations, spec.probe.iterations],
            "source": self.source.label,
            "devices": list(self.device_names),
            **{name: setting for name, setting in optional.items() if setting},
        }


def open_source(spec: study.StudySpec) -> DeviceSource:
    """Open and return the devices of a study: of this machine, or of all nodes of a trial. Raises DeviceError."""
    if spec.slurm.nodes > 1:
        return open_nodes(spec)
    return open_devices(spec.devices, memory_mib=spec.environment.memory_mib)


def open_workbench(
    requested_study: str,
    *,
    devices: str | None = None,
    runs: Path = Path("runs"),
    source_of: Callable[[study.StudySpec], DeviceSource] = open_source,
) -> Workbench:
    """Open a study with its trainer and devices, and return it. Raises StudyError, TrainerError or DeviceError.

    Args:
        requested_study: the name or the file of the study.
        devices: the devices to use in place of those in the study file, such as `cpu:2` or `0,1`; None for the latter.
        runs: the folder of the studies' folders.
        source_of: opens the devices.
    """
    spec = study.load(requested_study)
    check_metrics(spec)
    trainer, nodes = open_trainer(spec.trainer), spec.slurm.nodes
    if nodes > 1 and not trainer.spans_nodes:
        raise StudyError(
            f"slurm.nodes is {nodes}, and {trainer.name} starts ranks on one node only; name the nodes in a "
            "command: torchrun --nnodes {nodes} --nproc-per-node {local_ranks} --rdzv-backend c10d "
            "--rdzv-endpoint {head}:{port} train.py"
        )
    source = source_of(spec.model_copy(update={"devices": spec.devices_for(devices)}))
    if spec.prices:  # called for its StudyError, before anything is measured that would lack its price
        study.price_of_all(spec.prices, [device.model for device in source.devices], requested_study)
    return Workbench(
        spec=spec,
        requested_study=requested_study,
        trainer=trainer,
        source=source,
        folder=(runs / spec.name).resolve(),
        # on several nodes, each node adds the variables of its own devices
        variables=spec.environment.variables if nodes > 1 else launch_variables(spec, source),
    )


def chosen_cases(bench: Workbench, cases: Sequence[str] | None = None) -> list[study.Case]:
    """Return the requested cases, or else the study's cases. Raises StudyError for a glob that matches no case."""
    return study.select(bench.trainer.cases(), study.globs_of(cases or ()) or bench.spec.cases)


def cases_to_search(bench: Workbench, cases: Sequence[str] | None) -> list[study.Case]:
    """Return the chosen cases in the order of the search: as asked for, unless the study asks for all cases.

    Of all cases, those come first that help similar ones with their best config; see `search_order`.
    """
    chosen = chosen_cases(bench, cases)
    has_no_order = not cases and bench.spec.cases == ("*",)
    return study.search_order(chosen) if has_no_order else chosen
