"""Serves a session of probes with MimicKit: one built environment, in which one agent after another is trained.

A script of its own, run by MimicKit's python in the root of a checkout, where the package `tuner` is not installed. It
takes the arguments of `mimickit/run.py` without agent file, out dir and samples: these come with each run that the
tuner asks for. Agents are trained by MimicKit's own loop, so that an iteration does what it does in a plain run; test
rollouts and model files are left out, and as many updates made as `thin.py` says. A run that the tuner has seen enough
of is left between two updates.
"""

import gc
import multiprocessing
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from importlib.machinery import SourceFileLoader
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

Told = Callable[[Callable[[], Any]], Any]
"""Asks on rank 0, and gives every rank the answer."""

NO_TEST = {"mean_return": 0.0, "mean_ep_len": 0.0, "num_eps": 0}

LOOK_S = 1.0
"""About how often the ranks ask whether to leave a run: an exchange takes far less than a millisecond."""


def main() -> None:
    """Start the other ranks, which end with this one, and be rank 0, which speaks with the tuner."""
    sys.path[0] = str(Path("mimickit").absolute())  # as `python mimickit/run.py` has it; the other ranks inherit it
    progress = load("../../progress.py")
    pipes = [_start(rank) for rank in range(1, len(_devices(sys.argv)))]  # first, so that all import at once
    if (problem := load("contract.py").missing()) is not None:
        detail = f"MimicKit in {Path.cwd()}: {problem}, which a session needs; set probe.warm to false in the study"
        progress.failed(detail=detail, kind="missing_dependency")
        raise SystemExit(detail)
    say(pipes, lambda: "all is there")
    Rank(0, sys.argv, progress, partial(say, pipes)).serve()


def _devices(argv: Sequence[str]) -> list[str]:
    """Read them without MimicKit's own parser, whose import takes seconds."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--devices", nargs="+", required=True)
    return parser.parse_known_args(argv)[0].devices


def load(name: str) -> ModuleType:
    """Give a module of `tuner` by its file's path from here."""
    path = Path(__file__).parent / name
    module = ModuleType(path.stem)
    SourceFileLoader(module.__name__, str(path)).exec_module(module)
    return module


def _start(rank: int) -> Connection:
    """Start a rank; give the pipe through which it hears what rank 0 says."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    context.Process(target=follow, args=(rank, sys.argv, receiver), daemon=True).start()
    receiver.close()
    return sender


def follow(rank: int, argv: Sequence[str], pipe: Connection) -> None:
    """Be a rank other than 0: import MimicKit and, once rank 0 says that all is there, serve what it passes on."""
    with suppress(Exception):  # rank 0 imports the same meanwhile, and says what is wrong
        import_module("run")
    pipe.recv()
    Rank(rank, argv, load("../../progress.py"), lambda _: pipe.recv()).serve()


def say(pipes: Sequence[Connection], ask: Callable[[], Any]) -> Any:
    """Ask on rank 0, and tell the other ranks the answer; see `Told`.

    Through pipes: a rank that waits in a collective keeps its GPU busy, and gives up after some minutes.
    """
    answer = ask()
    for pipe in pipes:
        pipe.send(answer)
    return answer


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


class Left(Exception):  # noqa: N818 - it is no error
    """A run is over in the middle of an iteration."""


class Leave:
    """Has all ranks of one run leave it at the same point, soon after the tuner has seen enough.

    They ask after each iteration and, from the second one on, about every `LOOK_S` in between: all make the same
    updates, so that they need but count them.
    """

    def __init__(self, told: Told, stopped: Callable[..., bool]) -> None:
        """`stopped` is that of `tuner.progress`, asked on rank 0 alone."""
        self._told, self._stopped = told, stopped
        self.updates = 0
        """How many have been made, or begun."""
        self._began_s = time.monotonic()
        self._each = sys.maxsize
        """After how many updates they ask."""

    def after_iteration(self) -> bool:
        """Tell whether to leave now."""
        stopped, self._each = self._told(lambda: (self._stopped(), self._pace()))
        return stopped

    def before_update(self) -> None:
        """Raises Left."""
        self.updates += 1
        if self.updates % self._each == 0 and self._told(partial(self._stopped, midway=True)):
            raise Left

    def _pace(self) -> int:
        return max(1, round(LOOK_S * self.updates / (time.monotonic() - self._began_s)))


class Rank:
    """One rank, with the environment that all its agents are trained in."""

    def __init__(self, rank: int, argv: Sequence[str], progress: ModuleType, told: Told) -> None:
        """Build the environment, and wait until every rank has built its own."""
        run = import_module("run")
        self._mp_util = import_module("util.mp_util")
        self._builder = import_module("learning.agent_builder")
        self._cuda = import_module("torch").cuda
        self._optimizer = import_module("learning.mp_optimizer").MPOptimizer
        self._thinning = load("thin.py").Thinning
        self._rank, self._progress, self._told = rank, progress, told
        args = run.load_args(argv=argv)
        devices = args.parse_strings(key="devices")
        self._device = devices[rank]
        port, num_envs = (args.parse_int(key=key) for key in ("master_port", "num_envs"))
        self._mp_util.init(rank=rank, num_procs=len(devices), device=self._device, master_port=port)
        run.set_rand_seed(args=args)
        with kept_for_good():
            self._env = run.build_env(args=args, num_envs=num_envs, device=self._device, visualize=False)
        self._meet()

    def serve(self) -> None:
        """Train an agent for each request, and free it."""
        requests = self._progress.requests() if self._rank == 0 else iter(())
        while (request := self._told(partial(next, requests, None))) is not None:
            self._train(request)
            gc.collect()
            self._cuda.empty_cache()
            self._meet()

    def _meet(self) -> None:
        """Wait for all ranks."""
        self._mp_util.reduce_max(x=0)

    def _train(self, request: dict[str, Any]) -> None:
        if self._on_gpu:
            self._cuda.reset_accumulated_memory_stats(self._device)
        agent = self._builder.build_agent(agent_file=request["agent_config"], env=self._env, device=self._device)
        leave = Leave(self._told, self._progress.stopped)
        thin = self._thinning(agent, wanted=request.get("thin", False))
        update_model, count_samples = agent._update_model, agent._update_sample_count

        def update_and_report() -> Any:
            self._synchronize()
            thin.begin(leave.updates)
            info = update_model()
            self._synchronize()
            thin.end(leave.updates)
            self._report(agent, thin.told())
            return info

        def count_samples_or_leave() -> int:
            samples = count_samples()
            thin.take(self._told(thin.enough))
            return sys.maxsize if leave.after_iteration() or agent._iter + 1 >= request["iterations"] else samples

        agent._update_model, agent._update_sample_count = update_and_report, count_samples_or_leave
        agent.test_model = lambda *_: NO_TEST
        agent._output_train_model = lambda *_: None
        with self._before_updates(leave.before_update), suppress(Left):
            agent.train_model(
                max_samples=sys.maxsize, out_dir=request["out_dir"], save_int_models=False, logger_type="txt"
            )
        if (log := agent._logger.output_file) is not None:  # of rank 0; MimicKit itself closes it when it exits
            log.close()

    @contextmanager
    def _before_updates(self, call: Callable[[], None]) -> Iterator[None]:
        """Have every optimiser call it before each step."""
        step = self._optimizer.step

        def called_before(*args: Any, **kwargs: Any) -> None:
            call()
            step(*args, **kwargs)

        self._optimizer.step = called_before
        try:
            yield
        finally:
            self._optimizer.step = step

    def _synchronize(self) -> None:
        """Wait for what the GPU has been given to do."""
        if self._on_gpu:
            self._cuda.synchronize(self._device)

    def _report(self, agent: Any, thin: dict[str, float]) -> None:
        retries = self._cuda.memory_stats(self._device)["num_alloc_retries"] if self._on_gpu else None
        samples = agent._exp_buffer.get_total_samples()
        self._progress.report(iteration=agent._iter, samples=samples, rank=self._rank, alloc_retries=retries, **thin)

    @property
    def _on_gpu(self) -> bool:
        return self._device.startswith("cuda")


if __name__ == "__main__":
    main()
