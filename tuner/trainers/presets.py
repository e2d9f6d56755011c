"""What popular trainers print, and which of their flags are worth a search; `progress: sb3` names a row."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TQDM = (
    r"(?:\bEpoch\W+(?P<epoch>\d+)\b(?!%).*?)?"
    r"(?<![\d.,])(?P<iteration>\d[\d.,]*[kMG]?)(?:/\d[\d.,]*[kMG]?|[A-Za-z]+) \[\d+:\d\d"
)
"""A bar of tqdm: `12%|█▏   | 12/100 [00:01<00:10, 8.25it/s]`, or `12it [00:01, 8.25it/s]` where the end is unknown."""

ACCUMULATED = " * {gradient_accumulation_steps}"
"""The factor by which a step of an optimiser has more samples, if the trainer accumulates gradients."""

INTERACTIVE = {"TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1"}
"""Variables with which rich shows a running bar where there is no terminal. Lightning's bar is made with rich."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """A trainer: how to recognise its progress, and a command line to begin with."""

    progress: tuple[str, ...]
    """Patterns as in a study file."""
    counts: str
    """What one iteration is, and whose samples are counted."""
    command: str
    """A usual command line with placeholders."""
    space: Mapping[str, str]
    """Parameter → its values, in YAML."""
    samples: str = ""
    """The samples of an iteration of all ranks, computed from flags; empty where the trainer prints its samples."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables without which the trainer prints no progress into a pipe."""
    modules: tuple[str, ...] = ()
    """A script that imports one of these modules uses the trainer."""


_RSL_RL = (
    r"Learning iteration\s+(?P<iteration>\d+)",
    r"Total (?:time)?steps:\s+(?P<samples>\d+)",
    r"Mean reward:\s+(?P<return>\S+)",
)
_ENVIRONMENTS = "{ladder: [256, 512, 1024, 2048, 4096, 8192, 16384, 32768]}"
_BATCHES = "{choices: [8, 16, 32, 64, 128]}"
_WORKERS = "{choices: [0, 2, 4, 8]}"

PRESETS: Mapping[str, Preset] = {
    "mimickit": Preset(
        progress=(
            r"\|\s+Iteration\s+\|\s+(?P<iteration>\d+)\s+\|",
            r"\|\s+Samples\s+\|\s+(?P<samples>\d+)\s+\|",
            r"\|\s+(?:Test|Mean)_Return\s+\|\s+(?P<return>\S+)\s+\|",
        ),
        counts="one iteration: a rollout and its update; the printed samples are those of all ranks",
        command="",
        space={"num_envs": "{ladder: auto, max: 65536}"},
        modules=("mimickit",),
    ),
    "sb3": Preset(
        progress=(
            r"\b(?:iterations|episodes)\s+\|\s+(?P<iteration>\d+)",
            r"total_timesteps\s+\|\s+(?P<samples>\d+)",
            r"\bep_rew_mean\s+\|\s+(?P<return>\S+)",
        ),
        counts="one table: a rollout and its update, or some episodes of an off-policy algorithm",
        command="{python} train.py --n-envs {n_envs} --batch-size {batch_size}",
        space={"n_envs": "{choices: [8, 16, 32, 64]}", "batch_size": "{choices: [256, 512, 1024, 2048]}"},
        modules=("stable_baselines3", "sb3_contrib"),
    ),
    "rsl_rl": Preset(
        progress=_RSL_RL,
        counts="one iteration: a rollout and its update; the printed steps are those of all ranks",
        command="torchrun --nproc-per-node {ranks} --master-port {port} train.py --num_envs {num_envs}",
        space={"num_envs": _ENVIRONMENTS},
        modules=("rsl_rl",),
    ),
    "isaaclab": Preset(
        progress=_RSL_RL,
        counts="one iteration of rsl_rl: a rollout and its update; the printed steps are those of all ranks",
        command="./isaaclab.sh -p -m torch.distributed.run --nnodes=1 --nproc_per_node={ranks} --master_port={port} "
        "scripts/reinforcement_learning/rsl_rl/train.py --task=Isaac-Velocity-Rough-G1-v0 --headless --distributed "
        "--num_envs={num_envs} --max_iterations={iterations}",
        space={"num_envs": _ENVIRONMENTS},
        modules=("isaaclab",),
    ),
    "tqdm": Preset(
        progress=(TQDM,),
        counts="one step of the bar",
        command="torchrun --nproc-per-node {ranks} --master-port {port} train.py --batch-size {batch_size}",
        space={"batch_size": _BATCHES},
    ),
    "lightning": Preset(
        progress=(r"Epoch\s+(?P<epoch>\d+)\b.*?\s(?P<iteration>\d+)/(?:\d+|\?|--)\s",),
        counts="one batch of each rank",
        command="{python} train.py --devices {ranks} --batch-size {batch_size} --num-workers {num_workers}",
        space={"batch_size": _BATCHES, "num_workers": _WORKERS},
        samples="{batch_size} * {ranks}",
        env=INTERACTIVE,
        modules=("lightning", "pytorch_lightning"),
    ),
    "cleanrl": Preset(
        progress=(r"global_step=(?P<samples>\d+)", r"\bSPS: \d+", r"episodic_return=\[?(?P<return>-?[\d.e+-]+)"),
        counts="one printed speed: a rollout and its update",
        command="{python} ppo.py --num-envs {num_envs} --num-steps {num_steps}",
        space={"num_envs": "{ladder: [8, 16, 32, 64, 128]}", "num_steps": "{choices: [128, 256, 512]}"},
    ),
    "huggingface": Preset(
        progress=(TQDM,),
        counts="one optimiser step of all ranks",
        command="torchrun --nproc-per-node {ranks} --master-port {port} train.py --output_dir {out_dir} "
        "--per_device_train_batch_size {per_device_train_batch_size} "
        "--dataloader_num_workers {dataloader_num_workers}",
        space={"per_device_train_batch_size": _BATCHES, "dataloader_num_workers": _WORKERS},
        samples="{per_device_train_batch_size} * {ranks}" + ACCUMULATED,
        modules=("transformers", "trl", "sentence_transformers"),
    ),
    "accelerate": Preset(
        progress=(TQDM,),
        counts="one step of the bar: a batch of each rank",
        command="accelerate launch --num_processes {ranks} --main_process_port {port} train.py "
        "--batch_size {batch_size} --num_workers {num_workers}",
        space={"batch_size": _BATCHES, "num_workers": _WORKERS},
        samples="{batch_size} * {ranks}",
        modules=("accelerate",),
    ),
    "skrl": Preset(
        progress=(TQDM,),
        counts="one timestep of all environments of all ranks",
        command="torchrun --nproc-per-node {ranks} --master-port {port} train.py --num_envs {num_envs}",
        space={"num_envs": _ENVIRONMENTS},
        samples="{num_envs} * {ranks}",
        modules=("skrl",),
    ),
}
"""Name → preset. Of presets with the same patterns, the first is the general one."""


def with_preset(options: dict[str, Any]) -> dict[str, Any]:
    """Return a command's options with the patterns and variables of the preset that `progress` names, if it names one.

    Variables of the options win. Raises ValueError for an unknown name.
    """
    name = options.get("progress")
    if not isinstance(name, str):
        return options
    if name not in PRESETS:
        raise ValueError(f"progress {name!r} is no preset; known: {', '.join(PRESETS)}; or write a list of patterns")
    preset = PRESETS[name]
    return {**options, "progress": preset.progress, "env": {**preset.env, **(options.get("env") or {})}}
