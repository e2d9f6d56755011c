"""MimicKit as a trainer; reads its checkout: its packages, its cases, and the agent files that a config changes."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ruamel.yaml.error import YAMLError

from tuner.errors import ConfigRefusedError, TrainerError
from tuner.probe import LinePatterns, ProbePlan, Slot
from tuner.study import FILES, LADDER, VARIANT, Case, Config, Strict, TrainerSpec, Value, as_yaml, escaped, round_trip
from tuner.trainers import base
from tuner.trainers.base import Dependencies, LadderEnd, Limit
from tuner.trainers.command_options import PRESETS


def arguments_of_file(text: str) -> dict[str, tuple[str, ...]]:
    """Return the arguments of an argument file: key → values, in the order of the file, keys without their dashes.

    The rules are those of `mimickit/util/arg_parser.py`:

    - Lines and words that start with `#` are ignored.
    - A word that starts with two dashes, and is longer, is a key; the words after it are its values.
    - The first occurrence of a key wins.
    - Words before the first key are ignored.
    """
    table: dict[str, list[str]] = {}
    values: list[str] = []
    lines = (line for line in re.split(r"[\r\n]+", text) if not line.startswith("#"))
    for word in (word for line in lines for word in line.split() if not word.startswith("#")):
        if word.startswith("--") and len(word) > 2:
            values = []
            table.setdefault(word.removeprefix("--"), values)
        else:
            values.append(word)
    return {key: tuple(values) for key, values in table.items()}


def dependencies(python: str, engine_config: str) -> Dependencies:
    """Return the modules that MimicKit imports in its `python`, with those of a simulator.

    The name of the engine file names the simulator: `data/engines/newton_engine.yaml` names Newton.
    """
    simulators = {
        "newton": ("warp", "newton", "mujoco", "mujoco_warp", "trimesh", "scipy", "pyglet"),
        "isaac_gym": ("isaacgym",),  # must be imported before torch
    }
    simulator = next((modules for name, modules in simulators.items() if name in engine_config), ())
    always = ("torch", "numpy", "yaml", "gymnasium", "diffusers", "tensorboardX", "wandb", "moviepy")
    limits = (
        Limit(module="warp", below="1.13", beside=("newton", "1.0.0")),  # newton 1.0.0 sets wp.config.verbose
        Limit(module="pyglet", below="3"),
    )
    return Dependencies(python=python, modules=(*simulator, *always), limits=limits)


def checkout_at(root: str) -> Path:
    """Return the folder of a MimicKit checkout, the study's `trainer.root`.

    Raises TrainerError where `root` is empty or has no `mimickit/run.py` and `args/`.
    """
    remedy = "set MIMICKIT_ROOT, or trainer.root in the study file, to the root of a MimicKit checkout"
    if not root:
        raise TrainerError(f"the study gives mimickit no root; {remedy}")
    path = Path(root).expanduser().resolve()
    for part in ("args", "mimickit/run.py"):
        if not (path / part).exists():
            raise TrainerError(f"{path} is no MimicKit checkout: it has no {part}; {remedy}")
    return path


def cases(root: Path) -> list[Case]:
    """Return the case of every `args/*.txt`, sorted by file name; an unreadable file is the `fault` of its case."""
    return [_case(root, path.relative_to(root)) for path in sorted((root / "args").glob("*.txt"))]


def file_text(path: Path) -> str:
    """Return the text of a file. Raises TrainerError when it is not there or not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise TrainerError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        problem = f"{path} is not UTF-8 (byte {error.start})"
        raise TrainerError(f"{problem}; save it as UTF-8 or take it out of the checkout") from error


def _case(root: Path, path: Path) -> Case:
    """Return the case of an argument file; `path` is relative to the root of the checkout."""
    try:
        text, fault = file_text(root / path), ""
    except TrainerError as error:
        text, fault = "", str(error)
    first = {key: values[0] for key, values in arguments_of_file(text).items() if values}
    mode, agent = first.get("mode", "train"), first.get("agent_config")
    trainable = mode == "train" and (agent is not None or bool(fault))  # so that a file that cannot be read is noticed
    if mode == "train" and not (agent or fault):
        fault = f"{path} names no agent_config"
    files = [first[key] for key in ("agent_config", "env_config") if key in first]
    if absent := [name for name in files if not (root / name).is_file()]:
        fault = f"{root} has no file {', '.join(absent)}"
    elif trainable and agent and not fault:
        try:
            _check_agent(file_text(root / agent), agent)
        except TrainerError as error:
            fault = str(error)
    return Case(
        name=path.stem.removesuffix("_args"),
        mode=mode,
        trainable=trainable,
        fault=fault,
        options={"arg_file": path.as_posix()} | {key: first.get(key, "") for key in FILES},
    )


@cache
def _check_agent(text: str, source: str) -> None:
    """Raise TrainerError where a text is no agent file. A text that is one is read once: commands ask often."""
    _agent_content(text, source)


EPOCHS = "update_epochs"
BATCH_SIZE = "batch_size"
_LOOKED_FOR = {EPOCHS: "*_epochs", BATCH_SIZE: "batch_size beside update_epochs, *_batch_size beside *_epochs"}


class Variant(NamedTuple):
    """Bounds for the values of an agent file."""

    min_epochs: int = 0
    max_batch_size: float = math.inf
    nets: Mapping[str, str] = MappingProxyType({})
    """The networks to replace, by name → their replacement."""


VARIANTS = {
    "default": Variant(),
    "hiutil": Variant(min_epochs=20, max_batch_size=2, nets={"fc_2layers_1024units": "fc_3layers_1024units"}),
}


def adapted_agent(text: str, config: Mapping[str, Value], source: str) -> str:
    """Return the agent file `text` as `config` asks for; order, comments and the spelling of numbers stay.

    `update_epochs` and `batch_size` of the config replace the shipped values. Then its variant applies, which bounds
    them and may replace networks. A file that needs no change is returned as it is. `source` names the file in
    messages.

    Raises TrainerError when the text is no agent file. Raises ConfigRefusedError when a variant other than `default`
    would change nothing in the shipped file, and when the file has no key for a parameter of the config.
    """
    agent = _agent_content(text, source)
    name = config.get(VARIANT, "default")
    check_value(VARIANT, name)
    variant = VARIANTS[str(name)]
    if variant != Variant() and not _changes(agent, variant, {}, source):  # its probes would repeat those of `default`
        raise ConfigRefusedError(
            f"{source}: {VARIANT} {name!r} would change nothing; looked for {_LOOKED_FOR[EPOCHS]} below "
            f"{variant.min_epochs}, {_LOOKED_FOR[BATCH_SIZE]} above {variant.max_batch_size}, and model.*_net: "
            f"{', '.join(variant.nets)}; search this case with {VARIANT} 'default' alone"
        )
    changes = _changes(agent, variant, config, source)
    for mapping, key, value in changes:
        mapping[key] = value
    return as_yaml(agent) if changes else text


def check_value(parameter: str, value: Value) -> None:
    """Raise TrainerError for a value that no agent file can take."""
    if parameter == VARIANT and value not in VARIANTS:
        raise TrainerError(f"{VARIANT} {value!r} is unknown to mimickit; known: {', '.join(VARIANTS)}")
    if parameter in _LOOKED_FOR:
        _positive(value, f"{parameter} of the study")  # called for its TrainerError


def steps_per_iter(text: str, source: str) -> int:
    """Return the steps of each environment per iteration, 32 where the file names none, as in all of MimicKit.

    Raises TrainerError when the text is no agent file.
    """
    return int(_positive(_agent_content(text, source).get("steps_per_iter", 32), f"{source}: steps_per_iter"))


def ladder_end(text: str, source: str) -> LadderEnd | None:
    """Return the most environments whose samples of one iteration fit into an agent's replay buffer.

    In AMP, ADD and ASE each rank puts all samples of its first iteration into its own buffer, and MimicKit asserts that
    they fit (`learning/experience_buffer.py`, `push`). So the ladder ends there. Returns None for an agent without a
    replay buffer. Raises TrainerError where the text is no agent file; `source` names it in messages.
    """
    key = "disc_buffer_size"  # the samples, per device, that a discriminator sees again
    size = _agent_content(text, source).get(key)
    if size is None:
        return None
    samples, steps = int(_positive(size, f"{source}: {key}")), steps_per_iter(text, source)
    return LadderEnd(
        num_envs=samples // steps,
        reason=f"{source} keeps {key} {samples} samples, and each environment brings {steps} at once "
        f"(steps_per_iter); raise {key} for more, which changes what is learnt",
    )


def _changes(
    agent: dict[Any, Any], variant: Variant, config: Mapping[str, Value], source: str
) -> list[tuple[dict[Any, Any], str, Any]]:
    """Return the changes of an agent file for a config and a variant, where the values differ from those in the file.

    Each is the mapping that holds the value, its key, and the new value.
    """
    epoch_keys = [key for key in agent if isinstance(key, str) and key.endswith("_epochs")]  # one of each network
    batch_keys = [key for key in map(_batch_key, epoch_keys) if key in agent]
    epochs = _values_of_keys(agent, epoch_keys, config, EPOCHS, source)
    batch_sizes = _values_of_keys(agent, batch_keys, config, BATCH_SIZE, source)
    model = agent.get("model")
    nets = {key: net for key, net in model.items() if isinstance(net, str)} if isinstance(model, dict) else {}
    wanted = [
        *((agent, key, max(value, variant.min_epochs)) for key, value in epochs.items()),
        *((agent, key, min(value, variant.max_batch_size)) for key, value in batch_sizes.items()),
        *((model, key, variant.nets.get(net, net)) for key, net in nets.items()),
    ]
    return [(mapping, key, value) for mapping, key, value in wanted if mapping[key] != value]


def _batch_key(epoch_key: str) -> str:
    """Return the key of the batch size that belongs to a key of epochs."""
    return BATCH_SIZE if epoch_key == EPOCHS else epoch_key.removesuffix("_epochs") + "_batch_size"


def _values_of_keys(
    agent: Mapping[Any, Any], keys: Sequence[str], config: Mapping[str, Value], parameter: str, source: str
) -> dict[str, float]:
    """Return the value for each of an agent file's `keys`: the config's `parameter`, or else the value in the file.

    `source` names the file in messages. Raises ConfigRefusedError where the config has the parameter, but the file has
    no key for it.
    """
    if parameter not in config:
        return {key: _positive(agent[key], f"{source}: {key}") for key in keys}
    if not keys:
        raise ConfigRefusedError(f"{source}: has no key for {parameter}; looked for {_LOOKED_FOR[parameter]}")
    return dict.fromkeys(keys, _positive(config[parameter], f"{parameter} of the study"))


def _positive(value: object, subject: str) -> float:
    """Return a number above 0. Raises TrainerError for any other value; `subject` names it."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise TrainerError(f"{subject} is {value!r}; it must be a number above 0")
    return value


def _agent_content(text: str, source: str) -> dict[Any, Any]:
    """Return the keys and values of an agent file. Raises TrainerError for any other text."""
    try:
        agent = round_trip().load(text)
    except (YAMLError, ValueError) as error:
        problem = " ".join(str(error).split())
        raise TrainerError(f"agent file {source} is not YAML: {problem}; restore it from the checkout") from error
    if not isinstance(agent, dict):
        raise TrainerError(f"agent file {source} holds no mapping; it should start with `agent_name:`")
    return agent


DRIVER = Path(__file__).with_name("mimickit_driver.py")
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
    accepts = frozenset({LADDER, VARIANT, EPOCHS, BATCH_SIZE})

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
        self.dependencies = dependencies(self._python, self._options.engine_config)

    @property
    def declines(self) -> Mapping[str, str]:
        """The parameters of a DataLoader → that MimicKit has none."""
        return dict.fromkeys(("num_workers", "prefetch_factor"), "mimickit has no DataLoader")

    def cases(self) -> list[Case]:
        """Return the case of every argument file, with the engine that it would run on.

        Raises TrainerError when the root is no checkout of MimicKit. A case with an unusable file says so itself.
        """
        root, engine = checkout_at(self._spec.root), self._options.engine_config
        if engine and not (root / engine).is_file():
            problem = f"trainer.options.engine_config: {root} has no file {engine}"
            raise TrainerError(f"{problem}; name a file below this root")
        return [replace(case, options={**case.options, "engine_config": self._engine(case)}) for case in cases(root)]

    def check_value(self, parameter: str, value: Value) -> None:
        """Raise TrainerError for a value that no agent file can take."""
        check_value(parameter, value)

    def plan(self, case: Case, config: Config, slot: Slot) -> ProbePlan:
        """Return the plan of one probe: MimicKit's own command line, with an agent file that has the config's values.

        Raises TrainerError where the case's agent file cannot be used with this config.
        """
        root = checkout_at(self._spec.root)
        base_agent = case.options["agent_config"]
        if case.fault or not base_agent:
            raise TrainerError(f"case {case.name}: {case.fault or 'it is no training'}")
        shipped = file_text(root / base_agent)
        agent_file, train_dir = slot.out_dir / "agent.yaml", slot.out_dir / "train"
        envs = base.num_envs(self.name, config) * len(slot.devices)
        samples_per_iter = envs * steps_per_iter(shipped, base_agent)
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
            files={agent_file: adapted_agent(shipped, config, base_agent)},
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
        """Return the plan of the same probe as one run of a session that `DRIVER` serves. Raises as `plan` does."""
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
            return ladder_end(file_text(checkout_at(self._spec.root) / base_agent), base_agent)
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
