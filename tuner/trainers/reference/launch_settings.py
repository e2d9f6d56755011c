"""The settings of ranks and runs, and their arguments. No torch here: planning needs them too."""

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeVar, get_args

from tuner.errors import ConfigRefusedError, TrainerError
from tuner.study import VARIANT, Value, written

Method = Literal["add", "amp", "deepmimic"]

CASES: dict[str, Method] = {"add_pi_plus": "add", "amp_pi_plus": "amp", "deepmimic_pi_plus_ppo": "deepmimic"}
"""Case → its method; the names are MimicKit's, so that the same glob selects the cases of both trainers."""

STEPS_PER_ITERATION = 32
"""The control steps of each environment in one iteration."""

HIUTIL_MIN_EPOCHS = 20
HIUTIL_MAX_BATCH_SIZE = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentSettings:
    """What the agent is built and trained with."""

    hidden_layers: int
    hidden_units: int
    update_epochs: int
    batch_size: int
    """The minibatch in multiples of `num_envs`."""
    minibatch: int | None = None
    """The minibatch in samples of one rank, in place of `batch_size`; at most all samples of an iteration."""

    def minibatch_of(self, num_envs: int) -> int:
        """Return the minibatch in samples of one rank."""
        return self.minibatch or self.batch_size * num_envs


def default_hidden_units(device: str) -> int:
    """Choose the width of hidden layers: 1024 on a GPU, as MimicKit's agents; 64 on a CPU, so that a probe is short."""
    return 1024 if device.startswith("cuda") else 64


def agent_settings(config: Mapping[str, Value], *, hidden_units: int) -> AgentSettings:
    """Return the agent of the config's variant; `hiutil` bounds the epochs and the batch size of the config.

    Raises TrainerError for an unknown variant, and for a value that is not a whole number above 0. Raises
    ConfigRefusedError if two parameters name a minibatch.
    """
    variant = config.get(VARIANT, "default")
    minibatch = whole(config, "minibatch", default=1) if "minibatch" in config else None
    if minibatch and ("batch_size" in config or variant == "hiutil"):
        other = "batch_size" if "batch_size" in config else f"{VARIANT} hiutil"
        raise ConfigRefusedError(f"minibatch {minibatch}: {other} sets the minibatch, too; leave one of them out")
    if variant not in {"default", "hiutil"}:
        raise TrainerError(f"{VARIANT} {variant!r} is unknown to the reference trainer; it knows default and hiutil")
    is_high = variant == "hiutil"
    epochs = whole(config, "update_epochs", default=HIUTIL_MIN_EPOCHS if is_high else 5)
    batch_size = whole(config, "batch_size", default=HIUTIL_MAX_BATCH_SIZE if is_high else 4)
    return AgentSettings(
        hidden_layers=3 if is_high else 2,
        hidden_units=hidden_units,
        update_epochs=max(HIUTIL_MIN_EPOCHS, epochs) if is_high else epochs,
        batch_size=min(HIUTIL_MAX_BATCH_SIZE, batch_size) if is_high else batch_size,
        minibatch=minibatch,
    )


def whole(values: Mapping[str, object], name: str, *, default: int, least: int = 1) -> int:
    """Return a whole number of at least `least`. Raises TrainerError for any other value."""
    value = values.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise TrainerError(f"{name} {value!r}: the reference trainer needs a whole number of at least {least}")
    return value


Word = TypeVar("Word", bound=str)
Precision = Literal["auto", "bf16", "fp16", "fp32"]
RolloutDevice = Literal["cpu", "cuda"]

PRECISIONS: tuple[Precision, ...] = get_args(Precision)
ROLLOUT_DEVICES: tuple[RolloutDevice, ...] = get_args(RolloutDevice)
USUAL: Precision = "fp32"
"""The precision if none is asked for."""
SWITCHES = ("tf32", "cudnn_benchmark", "compile", "cuda_graphs")
"""The parameters that are true or false."""
NEED_A_GPU = ("tf32", "cudnn_benchmark", "cuda_graphs")
"""The switches that only a GPU can turn on."""
PREFETCH_FACTOR = 2
PARAMETERS = {
    VARIANT: "default, or hiutil: a larger network and more updates",
    "update_epochs": "how often an iteration's samples are learnt from; default: 5",
    "batch_size": "minibatch, in multiples of --num-envs; default: 4",
    "minibatch": "minibatch in samples per device, in place of --batch-size",
    "num_workers": "processes preparing clips, per device; default: 0",
    "prefetch_factor": f"batches ahead per worker; default: {PREFETCH_FACTOR}",
    "precision": f"number format of the layers: {', '.join(PRECISIONS)}; default: {USUAL}",
    "tf32": "true rounds the inputs of fp32 matrix products to TF32",
    "cudnn_benchmark": "true lets cuDNN time its algorithms",
    "compile": "true compiles the policy's loss with torch.compile",
    "cuda_graphs": "true replays the rollout as one CUDA graph",
    "rollout_device": f"where the rollout runs: {', '.join(ROLLOUT_DEVICES)}; default: --devices",
}
"""The parameters of a config that a run of a team takes → what they mean on the command line."""


def option(parameter: str) -> str:
    """Return the option of the command line with a parameter's value."""
    return f"--{parameter.replace('_', '-')}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernels:
    """How a run computes."""

    precision: Precision = USUAL
    """The number format of the networks' layers; weights, losses and the environment are always fp32.

    `auto` is bf16 on a GPU of compute capability 8.0 or more, fp16 on an older GPU, and fp32 on a CPU.
    """
    tf32: bool = False
    """Whether matrix products of fp32 numbers may round their inputs to TF32, a format with 10 bits of mantissa."""
    cudnn_benchmark: bool = False
    """Whether cuDNN times its algorithms and takes the fastest; the networks of this trainer do not use cuDNN."""
    compile: bool = False
    """Whether torch.compile compiles the loss of the policy. The discriminator's loss stays as it is."""
    cuda_graphs: bool = False
    """Whether a rollout is recorded once as a CUDA graph and then replayed with one launch."""
    rollout_device: RolloutDevice | None = None
    """Where the rollout runs; None for the rank's own device."""

    def check_on(self, device: str) -> None:
        """Raise ConfigRefusedError for a setting that cannot work on ranks with this device, such as `cpu`."""
        if device.startswith("cuda"):
            return
        needing = [f"{name} true" for name in NEED_A_GPU if getattr(self, name)]
        if self.rollout_device == "cuda":
            needing.append("rollout_device cuda")
        if needing:
            raise ConfigRefusedError(f"{', '.join(needing)}: needs a GPU, and the ranks of this run are on {device}")


def kernels(config: Mapping[str, Value]) -> Kernels:
    """Return the kernels that a config asks for.

    Raises TrainerError for a value that the trainer cannot use, and ConfigRefusedError for values that contradict each
    other.
    """
    precision: Precision | None = _one_of(config, "precision", PRECISIONS)
    asked = Kernels(
        precision=precision or USUAL,
        rollout_device=_one_of(config, "rollout_device", ROLLOUT_DEVICES),
        **{name: _switch(config, name) for name in SWITCHES},
    )
    if asked.cuda_graphs and asked.rollout_device == "cpu":
        raise ConfigRefusedError("cuda_graphs true needs rollout_device cuda: a graph holds only the GPU's work")
    return asked


def _one_of(config: Mapping[str, Value], name: str, words: tuple[Word, ...]) -> Word | None:
    if name not in config:
        return None
    for word in words:
        if word == config[name]:
            return word
    raise TrainerError(f"{name} {written(config[name])!r}: the reference trainer knows {', '.join(words)}")


def _switch(config: Mapping[str, Value], name: str) -> bool:
    value = config.get(name, False)
    if not isinstance(value, bool):
        raise TrainerError(f"{name} {value!r}: the reference trainer needs true or false")
    return value


@dataclass(frozen=True, kw_only=True, slots=True)
class RankTeam:
    """The processes that work together, one rank per device."""

    devices: tuple[str, ...]
    """The device of each rank, such as `cuda:0` or `cpu`."""
    master_port: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TeamSettings(RankTeam):
    """The settings that all runs of a started trainer share."""

    method: Method
    num_envs: int
    """Environments per device."""
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSettings:
    """The settings of one run."""

    agent: AgentSettings
    num_workers: int
    """The processes that prepare clips, per device. With 0 the rank prepares its clips itself."""
    prefetch_factor: int | None
    """The batches that each of these processes prepares ahead; None without such processes."""
    iterations: int
    kernels: Kernels = field(default_factory=Kernels)


def run_settings(config: Mapping[str, Value], *, hidden_units: int, iterations: int) -> TrainingSettings:
    """Return the settings of the run for a config.

    Raises TrainerError for a value that the trainer cannot use, and ConfigRefusedError for values that contradict each
    other.
    """
    num_workers = whole(config, "num_workers", default=0, least=0)
    prefetch_factor = whole(config, "prefetch_factor", default=PREFETCH_FACTOR)
    if "prefetch_factor" in config and not num_workers:
        raise ConfigRefusedError(f"prefetch_factor {prefetch_factor} needs num_workers of at least 1")
    return TrainingSettings(
        agent=agent_settings(config, hidden_units=hidden_units),
        num_workers=num_workers,
        prefetch_factor=prefetch_factor if num_workers else None,
        iterations=iterations,
        kernels=kernels(config),
    )


def team_parser(module: str) -> argparse.ArgumentParser:
    """Return a parser of the arguments that all runs of a started trainer share, for `python -m module`."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--devices", type=device_name, nargs="+", default=["cpu"], help="cuda:N or cpu, one rank each")
    parser.add_argument("--master-port", type=read_whole, required=True, help="where the ranks meet")
    parser.add_argument("--num-envs", type=read_whole, default=1024, help="environments per device")
    parser.add_argument("--hidden-units", type=read_whole, help="per hidden layer; 1024 on GPUs, 64 on CPUs")
    parser.add_argument("--seed", type=partial(read_whole, least=0), default=0)
    return parser


def team_settings(parser: argparse.ArgumentParser, given: argparse.Namespace) -> TeamSettings:
    """Return the settings that `parser` has read.

    Exits with status 2 and one message when the devices cannot be used together.
    """
    gpus = [device for device in given.devices if device != "cpu"]
    if gpus and len(set(gpus)) < len(given.devices):
        parser.error(f"--devices {' '.join(given.devices)}: give distinct GPUs, or cpu once per rank")
    return TeamSettings(
        method=CASES[given.case],
        devices=tuple(given.devices),
        master_port=given.master_port,
        num_envs=given.num_envs,
        seed=given.seed,
    )


def hidden_units(given: argparse.Namespace) -> int:
    """Return the width of hidden layers."""
    return given.hidden_units or default_hidden_units(given.devices[0])


def read_whole(text: str, *, least: int = 1) -> int:
    """Read an argument that is a whole number of at least `least`."""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least {least}")
    return int(text)


def device_name(text: str) -> str:
    """Read the name of a device as torch writes it."""
    if not re.fullmatch(r"cpu|cuda:\d+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither cpu nor cuda:N")
    return text
