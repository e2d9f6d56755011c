"""Serves a session of probes with MimicKit: one built environment, in which one agent after another is trained.

A script of its own, run by MimicKit's python in the root of a checkout, where the package `tuner` is not installed. It
takes the arguments of `mimickit/run.py` without agent file, out dir and samples: these come with each run that the
tuner asks for. Agents are trained by MimicKit's own loop, so that an iteration costs what it costs in a plain run; test
rollouts and model files are left out.
"""

import gc
import inspect
import multiprocessing
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import SourceFileLoader
from itertools import chain
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

Request = dict[str, Any]

CALLED = {
    "run:load_args": ("argv",),  # first: some simulators must be imported before torch, and `run` sees to it
    "run:set_rand_seed": ("args",),
    "run:build_env": ("args", "num_envs", "device", "visualize"),
    "util.arg_parser:ArgParser.parse_int": ("self", "key"),
    "util.arg_parser:ArgParser.parse_strings": ("self", "key"),
    "util.mp_util:init": ("rank", "num_procs", "device", "master_port"),
    "util.mp_util:reduce_max": ("x",),
    "learning.agent_builder:build_agent": ("agent_file", "env", "device"),
    "learning.base_agent:BaseAgent.train_model": ("self", "max_samples", "out_dir", "save_int_models", "logger_type"),
    "learning.base_agent:BaseAgent._update_sample_count": ("self",),
    "learning.experience_buffer:ExperienceBuffer.get_total_samples": ("self",),
}
"""What is called of MimicKit → the parameters it is called with."""

USED = {
    "learning.base_agent:BaseAgent.train_model": (
        *("_logger", "_iter", "_update_sample_count", "test_model", "_output_train_model"),
    ),
    "learning.base_agent:BaseAgent._update_sample_count": ("_exp_buffer", "get_total_samples"),
    "util.logger:Logger.configure_output_file": ("output_file",),
}
"""Methods of MimicKit → the names by which they are known to do their work."""

NO_TEST = {"mean_return": 0.0, "mean_ep_len": 0.0, "num_eps": 0}


def main() -> None:
    """Start the other ranks, which end with this one, and be rank 0, which speaks with the tuner."""
    sys.path[0] = str(Path("mimickit").absolute())  # as `python mimickit/run.py` has it; the other ranks inherit it
    progress = load_progress()
    if (problem := missing()) is not None:
        detail = f"MimicKit in {Path.cwd()}: {problem}, which a session needs; set probe.warm to false in the study"
        progress.failed(detail=detail, kind="missing_dependency")
        raise SystemExit(detail)
    devices = import_module("run").load_args(argv=sys.argv).parse_strings(key="devices")
    pipes = [_start(rank) for rank in range(1, len(devices))]
    Rank(0, sys.argv, progress).serve(_passed_on(progress.requests(), pipes))


def load_progress() -> ModuleType:
    """Give `tuner/progress.py`, from beside this file."""
    module = ModuleType("progress")
    SourceFileLoader(module.__name__, str(Path(__file__).parents[2] / "progress.py")).exec_module(module)
    return module


def missing() -> str | None:
    """Say what this driver relies on and MimicKit has not; None where all is there.

    A package that MimicKit itself misses is raised, as in a plain run.
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


def _start(rank: int) -> Connection:
    """Start a rank; give the pipe that takes its requests."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    context.Process(target=follow, args=(rank, sys.argv, receiver), daemon=True).start()
    receiver.close()
    return sender


def follow(rank: int, argv: Sequence[str], pipe: Connection) -> None:
    """Be a rank other than 0: serve what rank 0 passes on."""
    Rank(rank, argv, load_progress()).serve(iter(pipe.recv, None))


@contextmanager
def kept_for_good() -> Iterator[None]:
    """Spare the garbage collector what is built here: 4,000 objects for each environment, next to none of it garbage.

    It would search them again and again while they become more, and once more after each run
    (`benchmarks/building.py`).
    """
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def _passed_on(requests: Iterable[Request], pipes: Sequence[Connection]) -> Iterator[Request]:
    """Give the requests to the other ranks first, and None when there are no more.

    Through pipes: a rank that waits in a collective keeps its GPU busy, and gives up after some minutes.
    """
    for request in chain(requests, [None]):
        for pipe in pipes:
            pipe.send(request)
        if request is not None:
            yield request


class Rank:
    """One rank, with the environment that all its agents are trained in."""

    def __init__(self, rank: int, argv: Sequence[str], progress: ModuleType) -> None:
        """Build the environment, and wait until every rank has built its own."""
        run = import_module("run")
        self._mp_util = import_module("util.mp_util")
        self._builder = import_module("learning.agent_builder")
        self._cuda = import_module("torch").cuda
        self._rank, self._progress = rank, progress
        args = run.load_args(argv=argv)
        devices = args.parse_strings(key="devices")
        self._device = devices[rank]
        port, num_envs = (args.parse_int(key=key) for key in ("master_port", "num_envs"))
        self._mp_util.init(rank=rank, num_procs=len(devices), device=self._device, master_port=port)
        run.set_rand_seed(args=args)
        with kept_for_good():
            self._env = run.build_env(args=args, num_envs=num_envs, device=self._device, visualize=False)
        self._meet()

    def serve(self, requests: Iterable[Request]) -> None:
        """Train an agent for each request, and free it."""
        for request in requests:
            self._train(request)
            gc.collect()
            self._cuda.empty_cache()
            self._meet()

    def _meet(self, flag: bool = False) -> bool:
        """Wait for all ranks; tell whether one of them says `flag`."""
        return bool(self._mp_util.reduce_max(x=int(flag)))

    def _train(self, request: Request) -> None:
        if self._on_gpu:
            self._cuda.reset_accumulated_memory_stats(self._device)
        agent = self._builder.build_agent(agent_file=request["agent_config"], env=self._env, device=self._device)
        count_samples = agent._update_sample_count

        def update_sample_count() -> int:
            samples = count_samples()
            self._report(agent)
            stopped = self._meet(self._rank == 0 and self._progress.stopped())
            return sys.maxsize if stopped or agent._iter + 1 >= request["iterations"] else samples

        agent._update_sample_count = update_sample_count
        agent.test_model = lambda *_: NO_TEST
        agent._output_train_model = lambda *_: None
        agent.train_model(max_samples=sys.maxsize, out_dir=request["out_dir"], save_int_models=False, logger_type="txt")
        if (log := agent._logger.output_file) is not None:  # of rank 0; MimicKit itself closes it when it exits
            log.close()

    def _report(self, agent: Any) -> None:
        retries = None
        if self._on_gpu:
            self._cuda.synchronize(self._device)
            retries = self._cuda.memory_stats(self._device)["num_alloc_retries"]
        samples = agent._exp_buffer.get_total_samples()
        self._progress.report(iteration=agent._iter, samples=samples, rank=self._rank, alloc_retries=retries)

    @property
    def _on_gpu(self) -> bool:
        return self._device.startswith("cuda")


if __name__ == "__main__":
    main()
