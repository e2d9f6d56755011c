"""Serves a session of probes with MimicKit: it builds one environment and trains one agent after another in it.

MimicKit's Python runs this script in the root of a checkout, where the package `tuner` is not installed. The script
takes the arguments of `mimickit/run.py` without agent file, out dir and samples: these come with each run that the
tuner asks for. MimicKit's own loop trains the agents, so that an iteration does what it does in a plain run. Only test
rollouts and model files are left out, and `Thinning` says how many updates are made. A run that the tuner has seen
enough of ends between two updates. Before anything is built, the driver checks that MimicKit has all that it relies on.
"""

import gc
import inspect
import math
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

FromRank0 = Callable[[Callable[[], Any]], Any]
"""A function that calls its argument on rank 0 and returns the answer on every rank."""


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
    """Return the first thing that the driver relies on and MimicKit lacks; None where nothing is missing.

    Raises ModuleNotFoundError for a package that MimicKit itself needs, as in a plain run.
    """
    try:
        return next(_lacks(), None)
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] in {"run", "util", "learning"}:  # a module of MimicKit itself
            return f"no module {error.name}"
        raise


def _lacks() -> Iterator[str]:
    """Yield in words what of `CALLED` and `USED` MimicKit lacks.

    Only the first result is correct, because each check assumes that the checks before it found nothing.
    """
    for name in (*CALLED, *USED):
        if _find(name) is None:
            yield f"no {name.replace(':', '.')}"
    for name, parameters in CALLED.items():
        try:
            inspect.signature(_find(name)).bind(**dict.fromkeys(parameters))
        except TypeError:  # the function cannot be called with these parameters
            yield f"no {name.replace(':', '.')}({', '.join(parameters)})"
    for name, words in USED.items():
        if absent := set(words) - set(_find(name).__code__.co_names):
            yield f"no {', '.join(sorted(absent))} in {name.replace(':', '.')}"


def _find(name: str) -> Any:
    """Return the function or method that `module:path` names; None where the module lacks it."""
    module, _, path = name.partition(":")
    target: Any = import_module(module)
    for part in path.split("."):
        target = getattr(target, part, None)
    return target


def main() -> None:
    """Start the other ranks, which end with this process, then work as rank 0, which talks to the tuner."""
    sys.path[0] = str(Path("mimickit").absolute())  # as in `python mimickit/run.py`; the other ranks inherit it
    progress = load_progress()
    pipes = [_start(rank) for rank in range(1, len(_devices(sys.argv)))]  # first, so that all import at once
    if (problem := missing()) is not None:
        detail = f"MimicKit in {Path.cwd()}: {problem}, which a session needs; set probe.warm to false in the study"
        progress.failed(detail=detail, kind="missing_dependency")
        raise SystemExit(detail)
    broadcast(pipes, lambda: "all is there")  # the other ranks wait for this before they build anything
    DriverRank(0, sys.argv, progress, partial(broadcast, pipes)).serve()


def _devices(argv: Sequence[str]) -> list[str]:
    """Return the devices without MimicKit's own parser, whose import takes seconds."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--devices", nargs="+", required=True)
    return parser.parse_known_args(argv)[0].devices


def load_progress() -> ModuleType:
    """Load and return the module `tuner.progress`, whose package is not installed here."""
    module = ModuleType("progress")
    SourceFileLoader("progress", str(Path(__file__).parents[1] / "progress.py")).exec_module(module)
    return module


def _start(rank: int) -> Connection:
    """Start a rank; return the pipe through which it receives the answers of rank 0."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    context.Process(target=follow, args=(rank, sys.argv, receiver), daemon=True).start()
    receiver.close()
    return sender


def follow(rank: int, argv: Sequence[str], pipe: Connection) -> None:
    """Work as a rank other than 0: import MimicKit, wait for the check on rank 0, then serve the same requests."""
    with suppress(Exception):  # rank 0 imports the same and reports what is wrong
        import_module("run")
    pipe.recv()
    DriverRank(rank, argv, load_progress(), lambda _: pipe.recv()).serve()


def broadcast(pipes: Sequence[Connection], ask: Callable[[], Any]) -> Any:
    """Return what `ask` returns on rank 0, after sending it to the other ranks; see `FromRank0`.

    The answer goes through pipes: a rank that waits in a collective keeps its GPU busy and stops after some minutes.
    Where `ask` raises an error, rank 0 ends, and with it the other ranks, which are its daemons.
    """
    answer = ask()
    for pipe in pipes:
        pipe.send(answer)
    return answer


class RunEnd(Exception):  # noqa: N818 - it is no error
    """Raised to end a run in the middle of an iteration."""


class SharedEnd:
    """Lets all ranks end a run at the same point, soon after the tuner needs no more of it.

    The ranks exchange rank 0's answer after each iteration and, from the second iteration on, about every second inside
    it; an exchange takes far less than a millisecond. All ranks make the same updates, so each counts its updates to
    know when the next exchange comes.
    """

    def __init__(self, from_rank_0: FromRank0, stopped: Callable[..., bool]) -> None:
        """Let all ranks end a run together.

        `from_rank_0` shares an answer of rank 0. `stopped` returns whether the tuner wants the run to end.
        """
        self._from_rank_0, self._stopped = from_rank_0, stopped
        self.updates = 0
        """The number of updates that have been made or begun."""
        self._began_s = time.monotonic()
        self._interval = sys.maxsize
        """The number of updates between two exchanges inside an iteration; at first none takes place."""

    def after_iteration(self) -> bool:
        """Return whether to end the run now, and set the updates between exchanges to those of about a second."""
        updates_per_s = self.updates / (time.monotonic() - self._began_s)
        stopped, self._interval = self._from_rank_0(lambda: (self._stopped(), max(1, round(updates_per_s))))
        return stopped

    def before_update(self) -> None:
        """Count an update that begins, and exchange the answer if it is time. Raises RunEnd to end the run now."""
        self.updates += 1
        if self.updates % self._interval == 0 and self._from_rank_0(partial(self._stopped, midway=True)):
            raise RunEnd


LEAST_S = 3.0
"""Each iteration runs updates for at least this many seconds.

The first and the last 0.2 s of the updates show no measurement of their own. With 1.5 s, these ends alone gave errors
of 2 to 5 percentage points of utilisation on an H200, however many iterations ran.
"""
LEAST_SHARE_OF_REST = 0.5
"""Each iteration runs updates for at least this share of the rest of the iteration's time."""
LARGEST_FACTOR = 10
"""A second of updates stands for at most this many seconds of training: what its two ends add counts as often."""
MOST_SHARE = 2 / 3
"""An iteration that needs more than this share of its updates runs all of them."""


class Thinning:
    """Lets an agent make only a share of its updates in each iteration: the same share of the epochs of each network.

    All updates are alike, so a share of them shows how busy all of them keep a device. With 40 epochs, pi_plus spends
    60 to 95 % of an iteration on updates. On an H200 a quarter of the updates took a quarter of the time, at the same
    utilisation (`benchmarks/results/measurement.md`).

    The updates are divided into equal parts. The first iteration makes one part. The number of parts of each later
    iteration follows from the times of the iteration before.
    """

    def __init__(self, agent: Any, *, wanted: bool, now: Callable[[], float] = time.monotonic) -> None:
        """Divide the agent's updates into parts, and let it make one; all updates unless thinning is `wanted`.

        `now` returns the seconds of a monotonic clock.
        """
        self._now = now
        epochs = {name: count for name, count in vars(agent).items() if name.endswith("_epochs")}
        can_be_divided = wanted and all(isinstance(count, int) for count in epochs.values())
        self._parts = (math.gcd(*epochs.values()) or 1) if can_be_divided else 1  # gcd() of no numbers is 0
        """The number of equal parts into which all updates can be divided."""
        self._agent, self._epochs_of_part = agent, {name: count // self._parts for name, count in epochs.items()}
        """The agent, and the name of each number of epochs → the epochs of one part."""
        self._updates_of_part: float | None = None
        """The updates of a part in the last iteration."""
        self._is_proportional = True
        """Whether a part has made the same number of updates in all iterations so far."""
        self._rest_s, self._updates_before = 0.0, 0
        """The seconds of the iteration before its updates, and the updates of all iterations before."""
        self._began_s = self._ended_s = now()
        self.take(1)

    def take(self, parts: int) -> None:
        """Let the agent make this many parts of its updates in each iteration from now on."""
        self._parts_taken = parts
        for name, count in self._epochs_of_part.items():
            setattr(self._agent, name, count * parts)

    def begin(self, updates: int) -> None:
        """Note that this iteration's updates begin now; `updates` counts those of all iterations before."""
        self._updates_before, self._began_s = updates, self._now()
        self._rest_s = self._began_s - self._ended_s  # since the last updates

    def end(self, updates: int) -> None:
        """Note that this iteration's updates end now; `updates` counts all updates up to here."""
        self._ended_s = self._now()
        updates_of_part = (updates - self._updates_before) / self._parts_taken
        self._is_proportional &= self._updates_of_part in {None, updates_of_part}
        self._updates_of_part = updates_of_part

    def parts_needed(self) -> int:
        """Return how many parts of the updates the next iteration should make: enough for the wanted time, or all."""
        wanted_s = max(LEAST_S, LEAST_SHARE_OF_REST * self._rest_s)
        part_s = (self._ended_s - self._began_s) / self._parts_taken
        # two at least: the first iteration runs one part, and another number shows whether updates grow with the parts
        least = max(2, math.ceil(self._parts / LARGEST_FACTOR))
        parts = max(least, math.ceil(wanted_s / part_s))
        return parts if self._is_proportional and parts <= MOST_SHARE * self._parts else self._parts

    def report_fields(self) -> dict[str, float]:
        """Return the fields of a report that describe this iteration's updates; none where all updates were made."""
        factor = self._parts / self._parts_taken
        return {"thin_from_s": self._began_s, "thin_by": factor} if self._is_proportional and factor > 1 else {}


class DriverRank:
    """One rank, with the environment in which it trains all agents."""

    def __init__(self, rank: int, argv: Sequence[str], progress: ModuleType, from_rank_0: FromRank0) -> None:
        """Build the environment, and wait until every rank has built its own environment.

        Args:
            rank: The number of this rank.
            argv: MimicKit's arguments.
            progress: The module `tuner.progress`, by which rank 0 talks to the tuner.
            from_rank_0: Returns what its argument returns on rank 0, on every rank.
        """
        run = import_module("run")
        self._mp_util = import_module("util.mp_util")
        self._builder = import_module("learning.agent_builder")
        self._cuda = import_module("torch").cuda
        self._optimizer = import_module("learning.mp_optimizer").MPOptimizer
        self._rank, self._progress, self._from_rank_0 = rank, progress, from_rank_0
        args = run.load_args(argv=argv)
        devices = args.parse_strings(key="devices")
        self._device = devices[rank]
        port, num_envs = (args.parse_int(key=key) for key in ("master_port", "num_envs"))
        self._mp_util.init(rank=rank, num_procs=len(devices), device=self._device, master_port=port)
        run.set_rand_seed(args=args)
        # An environment has 4,000 objects, and almost no garbage. The collector would search all objects again and
        # again while their number grows, and once more after each run (`benchmarks/results/overhead.md`).
        gc.disable()
        self._env = run.build_env(args=args, num_envs=num_envs, device=self._device, visualize=False)
        gc.freeze()
        gc.enable()
        self._wait_for_all_ranks()

    def serve(self) -> None:
        """Train an agent for each request, then free its memory."""
        requests = self._progress.requests() if self._rank == 0 else iter(())  # only rank 0 takes from it
        while (request := self._from_rank_0(partial(next, requests, None))) is not None:
            self._train(request)
            gc.collect()
            self._cuda.empty_cache()
            self._wait_for_all_ranks()

    def _wait_for_all_ranks(self) -> None:
        """Return once every rank has called this."""
        self._mp_util.reduce_max(x=0)

    def _train(self, request: dict[str, Any]) -> None:
        """Train an agent as a request says, until its iterations are over or the tuner ends the run.

        MimicKit's own loop trains it, with some methods of the agent replaced. The loop ends where the number of
        samples reaches its limit, so the method that counts samples returns a huge number at the end of the run.
        """
        if self._on_gpu:
            self._cuda.reset_accumulated_memory_stats(self._device)
        agent = self._builder.build_agent(agent_file=request["agent_config"], env=self._env, device=self._device)
        ending = SharedEnd(self._from_rank_0, self._progress.stopped)
        thin = Thinning(agent, wanted=request.get("thin", False))
        update_model, count_samples = agent._update_model, agent._update_sample_count

        def update_and_report() -> Any:
            """Make the updates of an iteration, and report the iteration."""
            self._synchronize()
            thin.begin(ending.updates)
            info = update_model()
            self._synchronize()
            thin.end(ending.updates)
            self._report(agent, thin.report_fields())
            return info

        def count_samples_or_end() -> int:
            """Return the samples so far, or as many as MimicKit's limit where the run is to end."""
            samples = count_samples()
            thin.take(self._from_rank_0(thin.parts_needed))
            return sys.maxsize if ending.after_iteration() or agent._iter + 1 >= request["iterations"] else samples

        agent._update_model, agent._update_sample_count = update_and_report, count_samples_or_end
        agent.test_model = lambda *_: {"mean_return": 0.0, "mean_ep_len": 0.0, "num_eps": 0}  # without a test rollout
        agent._output_train_model = lambda *_: None  # without a model file
        with self._before_updates(ending.before_update), suppress(RunEnd):
            agent.train_model(
                max_samples=sys.maxsize, out_dir=request["out_dir"], save_int_models=False, logger_type="txt"
            )
        if (log := agent._logger.output_file) is not None:  # on rank 0; MimicKit itself closes it only when it exits
            log.close()

    @contextmanager
    def _before_updates(self, before_update: Callable[[], None]) -> Iterator[None]:
        """Call `before_update` before each step of any optimizer of MimicKit, while the context lasts.

        The method of their class is replaced, so this holds also for optimizers that are made later.
        """
        step = self._optimizer.step

        def step_after_call(*args: Any, **kwargs: Any) -> None:
            before_update()
            step(*args, **kwargs)

        self._optimizer.step = step_after_call
        try:
            yield
        finally:
            self._optimizer.step = step

    def _synchronize(self) -> None:
        """Wait until the GPU has done all its work."""
        if self._on_gpu:
            self._cuda.synchronize(self._device)

    def _report(self, agent: Any, thin: dict[str, float]) -> None:
        """Report an iteration to the tuner; `thin` are the fields of its updates."""
        retries = self._cuda.memory_stats(self._device)["num_alloc_retries"] if self._on_gpu else None
        samples = agent._exp_buffer.get_total_samples()
        self._progress.report(iteration=agent._iter, samples=samples, rank=self._rank, alloc_retries=retries, **thin)

    @property
    def _on_gpu(self) -> bool:
        """Whether this rank has a GPU."""
        return self._device.startswith("cuda")


if __name__ == "__main__":
    main()
