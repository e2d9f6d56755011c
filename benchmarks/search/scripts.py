"""Invented training scripts: a search is developed on half of the seeds and judged on the other half.

No number here was measured on a script of that kind. The formulas are those by which such scripts are explained: a
roofline with launches from the host, a DataLoader, `torch.compile`, device memory by data type, an optimizer. A table
has no ladder, and its objective is samples per second on one card of 24, 80 or 141 GB. The seed draws the card, the
script, the parameters that its user lists, and which choice fails for a reason that is not memory.

Even seeds are the half to develop on, odd seeds the half to report. These tables are frozen: a search is changed to do
well on them, and they are never changed to suit a search.
"""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import count

from benchmarks.search.script_kinds import CARDS, KINDS, cause, compiled, listed, space_of
from benchmarks.search.searching import LIMITS, Ground, Row, invented_header
from tuner.export.recorded_table import Recorded, Table
from tuner.probe.probe_plan import Device
from tuner.probe.result import DeviceSummary, Failure, FailureKind, ProbeResult
from tuner.study.space import Config, config_digest
from tuner.study.spec import ParameterSpec

_ITERATIONS = 8
_GIB = 1024.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """A table and what only the benchmark knows about its script."""

    table: Table
    kind: str
    own: Config
    """The values with which its user runs the script today. They run."""
    cause: str | None
    """The choice that fails for a reason that is not memory."""
    scatter: Mapping[str, Callable[[random.Random], float]]
    """Digest of a config → what a probe reads, as a multiple of the value."""


class ScriptGround(Ground):
    """A script's table as a benchmark reads it. Each probe starts the script; readings have heavy tails."""

    def __init__(self, script: Script) -> None:
        super().__init__(script.table)
        self.own = script.own
        self._scatter = script.scatter

    def reading(self, row: Row, draw: random.Random) -> float | None:
        value = row.verdict.value
        return None if value is None else value * self._scatter[config_digest(row.result.config)](draw)


@cache
def script(seed: int) -> Script:
    """Invent the script of this seed. Its user's own values run."""
    for attempt in count():
        drawn = _Drawn(random.Random(f"script {seed} {attempt}"), seed)
        found = drawn.table.find(drawn.own)
        if found and found.result.ok:
            return Script(
                table=drawn.table, kind=drawn.name, own=drawn.own, cause=drawn.cause_name, scatter=drawn.scatter
            )
    raise AssertionError


class _Drawn:
    """A script while it is drawn. Times are in seconds, memory in MiB."""

    def __init__(self, draw: random.Random, seed: int) -> None:
        def between(ends: tuple[float, float]) -> float:
            return math.exp(draw.uniform(math.log(ends[0]), math.log(ends[1])))

        self.name = draw.choice(list(KINDS))
        kind = self.kind = KINDS[self.name]
        self.card = draw.choice(CARDS[draw.choice((24, 24, 80, 80, 141))])
        self.salt = draw.random()
        self.params_m, self.kernels = between(kind.params_m), between(kind.kernels)
        size = draw.random()  # a sample with much arithmetic has many activations, too
        self.gflop = kind.gflop[0] * (kind.gflop[1] / kind.gflop[0]) ** size
        self.sample_mib = kind.sample_mib[0] * (kind.sample_mib[1] / kind.sample_mib[0]) ** size * between((0.6, 1.6))
        self.head_mib = kind.head_mib * draw.uniform(0.5, 2.0)
        self.input_mib, self.epoch = between(kind.input_mib), between(kind.epoch)
        # The device.
        self.reach, self.fill = draw.uniform(0.45, 0.85), between((0.3, 12.0))
        self.moved = draw.uniform(3.0, 9.0)
        self.waves, self.droop = between((3.0, 60.0)), max(0.0, draw.uniform(-0.03, 0.04))
        self.layout = {
            "half": draw.uniform(0.95, 1.4),
            "tf32": draw.uniform(0.9, 1.25),
            "fp32": draw.uniform(0.85, 1.05),
        }
        self.odd = draw.uniform(0.003, 0.02)
        # The host.
        self.launch_s = between((4e-6, 14e-6))
        self.cores = draw.choice((8, 12, 16, 32, 64))
        self.sync_s, self.copy_gb_s = between((2e-4, 6e-3)), draw.uniform(2.5, 9.0)
        # torch.compile.
        self.fuses, self.fewer = draw.uniform(0.4, 0.85), draw.uniform(0.25, 0.6)
        self.compile_s, self.keeps = draw.uniform(20.0, 60.0), draw.uniform(0.65, 1.08)
        self.ragged = draw.random() < kind.ragged
        self.recompiles = draw.random() < (0.8 if self.ragged else 0.15)
        # Memory.
        self.context_mib, self.others_mib = draw.uniform(500, 1_300), draw.choice((0.0, 0.0, draw.uniform(100, 1_500)))
        self.half_mib = draw.uniform(0.5, 0.72)
        self.fragments = draw.uniform(1.01, 1.05) + (draw.uniform(0.03, 0.15) if self.ragged else 0.0)
        self.recomputes = draw.uniform(0.15, 0.4)
        # The loader.
        self.decode_s = between(kind.decode_ms) / 1e3 if kind.decode_ms else 0.0
        self.wait_s = self.decode_s * draw.choice((0.0, 0.0, draw.uniform(0.3, 4.0)))
        self.worker_s = draw.uniform(0.03, 0.5)
        self.shared_mib = draw.choice((64.0, 2 * _GIB, 8 * _GIB)) if draw.random() < 0.2 else math.inf
        # The run.
        self.import_s, self.index_s = draw.uniform(6.0, 22.0), between((0.1, 25.0))
        self.end_s = between((0.3, 15.0))
        self.noise, self.tail = between((0.003, 0.015)), draw.choice((3, 4, 6, 10))
        self.space = listed(draw, kind, self.decode_s > 0.0)
        self.cause_name, self.fails = cause(draw, self.space, self.name)
        self.own = self._own(draw)
        self.scatter: dict[str, Callable[[random.Random], float]] = {}
        self.table = self._table(seed)

    def _own(self, draw: random.Random) -> Config:
        """Return the values of somebody who has not tuned yet."""
        sizes = self.space["batch_size"].values
        small = [size for size in sizes if float(size) <= draw.choice((4, 8, 16, 32, 64))] or list(sizes[:1])
        plain = {"batch_size": small[-1], "dtype": draw.choice(("fp32", "fp32", "bf16")), "compile_mode": "off"}

        def usual(name: str, spec: ParameterSpec) -> object:
            return plain[name] if plain.get(name) in spec.values else spec.values[0]

        chosen = {name: usual(name, spec) for name, spec in self.space.items()}
        if "num_workers" in self.space:
            chosen["num_workers"] = draw.choice(self.space["num_workers"].values)
        return space_of(self.space).config_of(lambda parameter: chosen[parameter.name])  # pyright: ignore[reportArgumentType]

    def _table(self, seed: int) -> Table:
        device = Device(name="cuda:0", model=self.card.model, mem_total_mib=self.card.mib)
        header = invented_header("scripts", f"script_{seed}", self.space, (device,))
        return Table(header, [Recorded(result=self._result(config)) for config in space_of(self.space).configs()])

    def _result(self, config: Config) -> ProbeResult:
        start_s, mib = self._start_s(config), self._mib(config)
        step_s, free_mib = self._step_s(config), self.card.mib - self.others_mib
        size = float(config["batch_size"])
        tight = mib > 0.96 * free_mib
        step_s *= self._own_draw("tight", config).uniform(1.05, 1.6) if tight else 1.0
        kind, failed_s = self._failure(config, start_s, mib / free_mib, step_s)
        if kind is not None:
            missing_mib = max(mib - free_mib, 1.0) if kind is FailureKind.GPU_OOM else None
            failure = Failure(kind=kind, rule=self.cause_name or "", detail="", overshoot_mib=missing_mib)
            return ProbeResult(config=config, plan_digest="", started_at="", total_s=failed_s, failure=failure)
        spread = self._spread(config)
        error = spread * math.exp(self._own_draw("error", config).gauss(-0.05, 0.35))
        rate = size / step_s
        self.scatter[config_digest(config)] = self._scatter(spread, self.epoch / rate)
        value = 1.0 / (1.0 / rate + self.end_s / self.epoch)
        stalls_s = self._own_draw("stall", config).uniform(5.0, 30.0) if self.recompiles and compiled(config) else 0.0
        run_s = max(7.0, (_ITERATIONS + 1) * step_s, min(6.0 * (100.0 * error) ** 2, 45.0))
        run_s = min(run_s + stalls_s, LIMITS.max_seconds)
        summary = DeviceSummary(
            device="cuda:0",
            source="nvml",
            util_mean_pct=None,
            mem_peak_mib=mib + self.others_mib,
            mem_total_mib=self.card.mib,
        )
        return ProbeResult(
            config=config,
            plan_digest="",
            started_at="",
            total_s=start_s + run_s,
            start_up_s=start_s,
            window_s=run_s - stalls_s,
            trained_s=run_s - stalls_s,
            iterations=max(_ITERATIONS, int(run_s / step_s)),
            samples_per_s=value,
            samples_per_s_se=value * error,
            alloc_retries=int(tight),
            devices=(summary,),
        )

    def _failure(self, config: Config, start_s: float, share: float, step_s: float) -> tuple[FailureKind | None, float]:
        """Return why a config fails, and the seconds after which it does."""
        early_s = self.import_s + self.index_s
        if self.fails(config):
            late = compiled(config) and "compile" in (self.cause_name or "")
            return FailureKind.CRASH, early_s + (0.4 * self.compile_s if late else 2.0)
        workers = float(config.get("num_workers", 0))
        shared_mib = workers * float(config.get("prefetch_factor", 2)) * float(config["batch_size"]) * self.input_mib
        if workers and shared_mib > self.shared_mib:
            return FailureKind.HOST_OOM, early_s + workers * self.worker_s + 2.0
        if share > 1.0:
            return FailureKind.GPU_OOM, early_s + 2.0 if share > 1.3 else start_s + min(2.0 * step_s, 30.0)
        if start_s > LIMITS.longest_start_s:
            return FailureKind.TOO_SLOW, LIMITS.longest_start_s
        if _ITERATIONS * step_s > LIMITS.max_seconds:  # without the start
            return FailureKind.TOO_SLOW, start_s + LIMITS.max_seconds
        return None, 0.0

    def _own_draw(self, *of: object) -> random.Random:
        """Return the random numbers of one config: the same in each probe of it."""
        return random.Random(f"{self.salt} {[sorted(one.items()) if isinstance(one, dict) else one for one in of]}")

    def _step_s(self, config: Config) -> float:
        """Return the seconds of a step: those of the device, the host or the loader, and those in which all wait."""
        size, workers = float(config["batch_size"]), float(config.get("num_workers", 0))
        device_s, host_s = self._device_s(config, size), self._host_s(config)
        if self.decode_s and workers >= self.cores - 1:
            host_s *= 1.0 + 0.15 * min(workers / self.cores, 2.0)
        step_s = _slower(device_s, host_s, 4.0) + self.sync_s + self._copy_s(config, size)
        if not self.decode_s:
            return step_s
        one_s = self.decode_s + self.wait_s
        if not workers:
            return step_s + size * one_s
        # A processor serves several workers that wait.
        busiest = self.cores * one_s / self.decode_s
        serving = _slower(workers, busiest, -6.0) / (1.0 + 0.05 * max(0.0, workers / self.cores - 1.0))
        ahead = workers * float(config.get("prefetch_factor", 2))
        return _slower(step_s, size * one_s / serving, 2.5 + 1.3 * math.log2(ahead))

    def _device_s(self, config: Config, size: float) -> float:
        half, fused = config.get("dtype", "fp32") != "fp32", compiled(config)
        unit = "half" if half else "tf32" if config.get("tf32") else "fp32"
        peak = {"half": self.card.half, "tf32": self.card.tf32, "fp32": self.card.fp32}[unit]
        again = 1.33 if config.get("checkpointing") else 1.0
        work = size * self.gflop * again
        filled = work / (work + self.fill * peak / 100.0 * math.sqrt(self.gflop))
        waves = size * self.waves / 4.0
        filled *= 0.8 + 0.2 * waves / math.ceil(waves)
        filled /= 1.0 + self.droop * max(0.0, math.log2(size / 64.0))
        layout = self.layout[unit] if config.get("channels_last") else 1.0
        layout = 1.0 + (layout - 1.0) * (0.4 if fused else 1.0)
        arithmetic_s = work / (1e3 * peak * self.reach * filled * layout)
        moved_mib = self.moved * self.sample_mib * size * (0.6 if half else 1.0) * (self.fuses if fused else 1.0)
        optimizer_mib = self.params_m * 4.0 * (6.0 if config.get("fused") else 11.0)
        moved_s = (moved_mib * again + optimizer_mib) / (1e3 * self.card.gb_s * 0.85)
        picks = {name: value for name, value in config.items() if name not in _OF_LOADER}
        return (arithmetic_s + moved_s) * math.exp(self._own_draw("picked", picks).gauss(0.0, self.odd))

    def _host_s(self, config: Config) -> float:
        """Return the seconds in which the host launches the kernels of a step."""
        kernels = self.kernels * (1.25 if config.get("dtype", "fp32") != "fp32" else 1.0)
        kernels *= 1.3 if config.get("checkpointing") else 1.0
        if config.get("compile_mode") == "reduce-overhead":
            kernels *= 0.05
        elif compiled(config):
            kernels *= self.fewer
        kernels += (0.01 if config.get("fused") else 0.08) * self.kernels
        scaler = 60.0 if config.get("dtype") == "fp16" else 0.0
        return self.launch_s * (kernels + scaler)

    def _copy_s(self, config: Config, size: float) -> float:
        """Return the seconds for which a step waits for its input: pinned memory is copied beside the work."""
        return 0.0 if config.get("pin_memory") else size * self.input_mib / _GIB / self.copy_gb_s

    def _mib(self, config: Config) -> float:
        """Return the peak of device memory. Weights, gradients and Adam's state stay fp32 with automatic casts."""
        size, half, fused = float(config["batch_size"]), config.get("dtype", "fp32") != "fp32", compiled(config)
        model_mib = self.params_m * 4.0 * (4.0 + (0.5 if half else 0.0) + (0.0 if config.get("fused") else 0.7))
        sample_mib = self.sample_mib * (self.half_mib if half else 1.0) * (self.keeps if fused else 1.0)
        sample_mib *= self.recomputes if config.get("checkpointing") else 1.0
        sample_mib += self.head_mib * (0.6 if fused else 1.0)
        graphs_mib = 0.06 * size * sample_mib if config.get("compile_mode") == "reduce-overhead" else 0.0
        return self.context_mib + model_mib + self.fragments * size * sample_mib + graphs_mib

    def _start_s(self, config: Config) -> float:
        """Return the seconds to the end of the first iteration."""
        workers, size = float(config.get("num_workers", 0)), float(config["batch_size"])
        first_s = workers * self.worker_s + size * (self.decode_s + self.wait_s)
        times = {"off": 0.0, "max-autotune": 2.5}.get(str(config.get("compile_mode", "on")), 1.0)
        compile_s = self.compile_s * times if compiled(config) else 0.0
        return self.import_s + self.index_s + first_s + compile_s + 2.0 * self._step_s(config)

    def _spread(self, config: Config) -> float:
        """Return the relative standard deviation of a reading: larger where the loader is the limit."""
        if not self.decode_s:
            return self.noise
        size = float(config["batch_size"])
        busy_s = _slower(self._device_s(config, size), self._host_s(config), 4.0)
        starved = 1.0 - min(1.0, busy_s / self._step_s(config))
        return self.noise * (1.0 + 3.0 * starved)

    def _scatter(self, spread: float, epoch_s: float) -> Callable[[random.Random], float]:
        """Return what draws a reading: Student's t, and a window that holds the end of an epoch or does not."""
        window_s, share = 12.0, self.end_s / (epoch_s + self.end_s)

        def drawn(draw: random.Random) -> float:
            heavy = draw.gauss(0.0, 1.0) / math.sqrt(draw.gammavariate(self.tail / 2.0, 2.0 / self.tail))
            reading = max(0.2, 1.0 + spread * max(-12.0, min(12.0, heavy)))
            if epoch_s + self.end_s < window_s:
                return reading
            lost = min(self.end_s, 0.6 * window_s) / window_s
            meets = min(1.0, share / lost)
            return reading * ((1.0 - lost) if draw.random() < meets else 1.0) / (1.0 - meets * lost)

        return drawn


_OF_LOADER = frozenset({"num_workers", "prefetch_factor", "pin_memory"})


def _slower(one: float, other: float, power: float) -> float:
    """Return about the larger of two times; about the smaller if `power` is negative."""
    most = max(one, other)
    return most * ((one / most) ** power + (other / most) ** power) ** (1.0 / power)
