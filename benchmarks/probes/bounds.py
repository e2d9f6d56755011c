"""The least time that an iteration of the reference trainer can take: by memory, launches, arithmetic and clips.

The figures of a card are those of its data sheet; `launch_s` and `clip_s` are measured where the benchmark runs.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tuner.trainers.reference.launch_settings import STEPS_PER_ITERATION, AgentSettings
from tuner.trainers.reference.methods import Learner, Networks, PolicyLoss
from tuner.trainers.reference.training import collect
from tuner.trainers.reference.world import JOINTS, OBSERVATION, MotionClips, TrackingEnv, frames_needed

FLOAT_BYTES = 4
FORMAT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
CLIPS_TIMED, LAUNCHES_TIMED = 300, 5000
GRAPH_LAUNCHES = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """What the data sheet of a card says, per second, without sparsity."""

    bytes_per_s: float
    flops: dict[str, float]
    """Number format → floating-point operations in matrix products."""


CARDS = {
    "H200": Card(bytes_per_s=4.8e12, flops={"fp32": 67e12, "tf32": 494.5e12, "bf16": 989.5e12, "fp16": 989.5e12}),
    "H100": Card(bytes_per_s=3.35e12, flops={"fp32": 67e12, "tf32": 494.5e12, "bf16": 989.5e12, "fp16": 989.5e12}),
}
"""Part of a card's name → its figures: NVIDIA H200 and H100 Tensor Core GPU data sheets, the SXM variants.

The sheets give TF32, BF16 and FP16 with sparsity: 989, 1,979 and 1,979 TFLOPS. Dense products reach half of that.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What one iteration of one rank does."""

    samples: int
    bytes: float
    launches: int
    flops: float
    clips: float
    """The clips that one process prepares one after another."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launches:
    """How many operations the trainer launches one by one."""

    rollout: int
    update: int
    """Of one minibatch: gathering, forward, backward and the optimiser's step."""


class _Counted(TorchDispatchMode):
    """Counts operations that compute or copy; a view launches nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def layers(agent: AgentSettings) -> list[tuple[int, int]]:
    """Return the inputs and outputs of each layer of actor and critic."""
    sizes = [OBSERVATION, *[agent.hidden_units] * agent.hidden_layers]
    hidden = list(itertools.pairwise(sizes))
    return [*hidden, (sizes[-1], JOINTS), *hidden, (sizes[-1], 1)]


def work(agent: AgentSettings, num_envs: int, launches: Launches, *, config: dict[str, Any]) -> Work:
    """Return the least work of an iteration of the method deepmimic with a config.

    Bytes count each tensor once per kernel that must touch it, as if caches kept nothing between kernels. A layer reads
    its input and weights and writes its output; backward reads them and the output's gradient, and writes two
    gradients. Adam reads weight, gradient and two moments, and writes three of them (Kingma and Ba 2015, algorithm 1).
    """
    samples, minibatch = num_envs * STEPS_PER_ITERATION, min(agent.minibatch_of(num_envs), num_envs * 32)
    steps = agent.update_epochs * -(-samples // minibatch)
    element = FORMAT_BYTES[config.get("precision", "fp32")]
    weights = sum(inputs * outputs for inputs, outputs in layers(agent))
    values = sum(inputs + outputs for inputs, outputs in layers(agent))
    gathered = 2 * FLOAT_BYTES * (OBSERVATION + JOINTS + 3)
    forward = element * (samples * values + STEPS_PER_ITERATION * weights)
    update = steps * (3 * element + 7 * FLOAT_BYTES) * weights
    update += agent.update_epochs * samples * (3 * element * values + gathered)
    graphed = GRAPH_LAUNCHES if config.get("cuda_graphs") else launches.rollout
    return Work(
        samples=samples,
        bytes=forward + update,
        launches=graphed + steps * launches.update,
        flops=2.0 * weights * samples * (1 + 3 * agent.update_epochs),
        clips=num_envs / max(int(config.get("num_workers", 0)), 1),
    )


def bounds(
    made: Work, card: Card | None, *, config: dict[str, Any], launch_s: float, clip_s: float
) -> dict[str, float]:
    """Return what each limit alone allows, in samples per second."""
    kind = config.get("precision", "fp32")
    kind = "tf32" if kind == "fp32" and config.get("tf32") else kind
    took = {"launches": made.launches * launch_s, "clips": made.clips * clip_s}
    if card is not None:
        took |= {"memory": made.bytes / card.bytes_per_s, "arithmetic": made.flops / card.flops[kind]}
    return {name: made.samples / seconds for name, seconds in took.items()}


def count_launches(agent: AgentSettings) -> Launches:
    """Count the operations of a rollout and of one minibatch, by running a small agent on the CPU."""
    torch.manual_seed(0)
    networks, device = Networks("deepmimic", agent), torch.device("cpu")
    clips = torch.stack([MotionClips(frames=frames_needed(STEPS_PER_ITERATION))[number] for number in range(2)])
    learner = Learner(PolicyLoss(networks.policy), epochs=1, minibatch=2 * STEPS_PER_ITERATION, wrap=lambda loss: loss)
    samples, rollout = _counting(lambda: collect(TrackingEnv(device), networks.policy, None, clips))
    learner.update(samples)  # the first step makes the moments of Adam
    _, update = _counting(lambda: learner.update(samples))
    return Launches(rollout=rollout, update=update)


def _counting(act: Callable[[], Any]) -> tuple[Any, int]:
    with _Counted() as counted:
        return act(), counted.count


def launch_seconds(name: str) -> float:
    """Measure the seconds of one launch on a device: many additions to a single number, one after another."""
    device, took_s = torch.device(name), 0.0
    number = torch.zeros(1, device=device)
    for count in (LAUNCHES_TIMED // 10, LAUNCHES_TIMED):
        start_s = time.perf_counter()
        for _ in range(count):
            number.add_(1)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        took_s = time.perf_counter() - start_s
    return took_s / LAUNCHES_TIMED


def clip_seconds() -> float:
    """Measure the seconds in which one process prepares one clip."""
    clips = MotionClips(frames=frames_needed(STEPS_PER_ITERATION))
    start_s = time.perf_counter()
    for number in range(CLIPS_TIMED):
        clips[number]
    return (time.perf_counter() - start_s) / CLIPS_TIMED
