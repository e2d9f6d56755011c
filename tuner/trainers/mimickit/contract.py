"""Checks that MimicKit has everything the driver relies on, before the driver builds anything.

The driver loads this file from its own folder, with MimicKit's folder on the path.
"""

import inspect
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

CALLED = {
    "run:load_args": ("argv",),  # first, because `run` imports those simulators that must come before torch
    "run:set_rand_seed": ("args",),
    "run:build_env": ("args", "num_envs", "device", "visualize"),
    "util.arg_parser:ArgParser.parse_int": ("self", "key"),
    "util.arg_parser:ArgParser.parse_strings": ("self", "key"),
    "util.mp_util:init": ("rank", "num_procs", "device", "master_port"),
    "util.mp_util:reduce_max": ("x",),
    "learning.agent_builder:build_agent": ("agent_file", "env", "device"),
    "learning.base_agent:BaseAgent.train_model": ("self", "max_samples", "out_dir", "save_int_models", "logger_type"),
    "learning.base_agent:BaseAgent._update_model": ("self",),
    "learning.base_agent:BaseAgent._update_sample_count": ("self",),
    "learning.experience_buffer:ExperienceBuffer.get_total_samples": ("self",),
    "learning.mp_optimizer:MPOptimizer.step": ("self", "loss"),
}
"""The functions of MimicKit that the driver calls → the parameters that it calls them with."""

USED = {
    "learning.base_agent:BaseAgent.train_model": (
        *("_logger", "_iter", "_update_sample_count", "test_model", "_output_train_model"),
    ),
    "learning.base_agent:BaseAgent._train_iter": ("_update_model",),
    "learning.base_agent:BaseAgent._update_sample_count": ("_exp_buffer", "get_total_samples"),
    "learning.mp_optimizer:MPOptimizer.step": ("_aggregate_mp_grads",),
    "util.logger:Logger.configure_output_file": ("output_file",),
}
"""Methods of MimicKit → the names that their code must use, so that the driver can change what they do."""


def missing() -> str | None:
    """Return what the driver relies on and MimicKit lacks; None where nothing is missing.

    Raises ModuleNotFoundError for a package that MimicKit itself needs, as in a plain run.
    """
    try:
        return next(_changes(), None)
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] in {"run", "util", "learning"}:
            return f"no module {error.name}"
        raise


def _changes() -> Iterator[str]:
    for name in (*CALLED, *USED):
        if _find(name) is None:
            yield f"no {name.replace(':', '.')}"
    for name, parameters in CALLED.items():
        if not _takes(_find(name), parameters):
            yield f"no {name.replace(':', '.')}({', '.join(parameters)})"
    for name, words in USED.items():
        if absent := set(words) - set(_find(name).__code__.co_names):
            yield f"no {', '.join(sorted(absent))} in {name.replace(':', '.')}"


def _find(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = import_module(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _takes(function: Any, parameters: Sequence[str]) -> bool:
    try:
        inspect.signature(function).bind(**dict.fromkeys(parameters))
    except TypeError:
        return False
    return True
