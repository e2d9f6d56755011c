"""How a run computes: number formats, compiled code, graphs, and where the rollout runs.

This file does not import torch, because planning needs it too.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from tuner.errors import ConfigRefusedError, TrainerError
from tuner.study.space import Value, written

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
KERNELS = ("precision", *SWITCHES, "rollout_device")
"""All parameters of this file. They change what is learnt only by rounding, and by the order of random numbers."""


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

    def arguments(self) -> Iterator[str]:
        """Yield the words of the trainer's command line; what has its default is left out."""
        if self.precision != USUAL:
            yield from ("--precision", self.precision)
        yield from (f"--{name.replace('_', '-')}" for name in SWITCHES if getattr(self, name))
        if self.rollout_device is not None:
            yield from ("--rollout-device", self.rollout_device)

    def check(self) -> None:
        """Raise ConfigRefusedError for settings that contradict each other."""
        if self.cuda_graphs and self.rollout_device == "cpu":
            raise ConfigRefusedError("cuda_graphs true needs rollout_device cuda: a graph holds only the GPU's work")

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
    asked.check()
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
