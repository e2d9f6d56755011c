"""Invented launches of large models on 2 to 8 cards: half of the seeds are to develop a search, half to judge it.

No number here was measured. The formulas are those by which such launches are explained: a roofline whose efficiency
rises with the micro-batch, the bubble of a pipeline, the traffic of tensor and data parallel training, recomputing,
ZeRO, optimizer states on the host. The product of the degrees of parallelism is the number of cards, and the
micro-batches of all ranks divide the global batch. Some choices crash or hang beside each other only.

Even seeds are the half to develop on, odd seeds the half to report. The tables are frozen, as those of `scripts` are.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, cached_property
from itertools import count

from benchmarks.search.script_kinds import CARDS, Card
from benchmarks.search.searching import LIMITS, Ground, Row, invented_header
from tuner.export.recorded_table import Table
from tuner.probe.probe_plan import Device
from tuner.probe.result import DeviceSummary, Failure, FailureKind, ProbeResult
from tuner.search.verdict import judge
from tuner.study.space import Config, Space, Value, config_digest
from tuner.study.spec import ParameterSpec

_MIB = float(1 << 20)
_VOCABULARY = 50_000
_ITERATIONS = 8
Failed = tuple[FailureKind, str, float]
"""Why a launch fails: the kind, the choices, and the seconds after which it does."""


@cache
def launch(seed: int) -> "LaunchGround":
    """Invent the launch of this seed. Its user's own values run."""
    for attempt in count():
        ground = LaunchGround(_Launch(random.Random(f"launch {seed} {attempt}")), seed)
        own = ground.space.own
        if own and ground.row(own).value > 0.0:
            return ground
    raise AssertionError


class LaunchGround(Ground):
    """A launch as a benchmark reads it. The row of a config is made when it is asked for."""

    def __init__(self, drawn: "_Launch", seed: int) -> None:
        device = Device(name="cuda:0", model=drawn.card.model, mem_total_mib=drawn.card.mib)
        header = invented_header("launches", f"launch_{seed}", drawn.space, (device,) * drawn.cards)
        super().__init__(Table(header, []))
        self.space: Space = replace(self.space, holds=drawn.holds)
        self._drawn = drawn

    @cached_property
    def best(self) -> Row:
        """The row of the fastest config."""
        most_mib = (1.0 - LIMITS.headroom_pct / 100.0) * self._drawn.card.mib
        fit = (config for config in self.configs if self._drawn.peak_mib(config) <= most_mib)
        return self.row(max((one for one in fit if not self._drawn.failure(one)), key=self._drawn.speed))

    def parts(self, row: Row, draw: random.Random) -> dict[str, float]:
        """Return the seconds of a step by part, as a probe reads them; see `_Launch.parts`."""
        return self._drawn.read(row.result.config, draw)

    def _read(self, config: Mapping[str, Value]) -> Row:
        result = self._drawn.result(dict(config), len(self.header.devices))
        verdict = judge(result, self.header.objective, headroom_pct=LIMITS.headroom_pct)
        run_s = result.total_s - (result.start_up_s or 0.0)
        return Row(result=result, verdict=verdict, session_key=None, cold_s=result.total_s, run_s=run_s)


class _Launch:
    """A launch while it is drawn. Times are in seconds, memory in bytes."""

    def __init__(self, draw: random.Random) -> None:
        def between(least: float, most: float) -> float:
            return math.exp(draw.uniform(math.log(least), math.log(most)))

        self.salt, self.cards = draw.random(), draw.choice((2, 4, 4, 8, 8))
        self.card: Card = draw.choice(CARDS[draw.choice((24, 80, 80, 141))])
        self.free = self.card.mib * _MIB - draw.uniform(0.7, 2.0) * 2**30
        # Weights, gradients and optimizer states fill between a third of all cards and more than there is.
        fits_b = self.cards * self.free / 18.0 / 1e9
        self.params = 1e9 * min(13.0, max(0.3, fits_b * between(0.3, 1.8)))
        self.hidden = (self.params * 64.0 / 12.0) ** (1.0 / 3.0)
        self.layers, self.length = max(8.0, self.hidden / 64.0), draw.choice((1024, 2048, 2048, 4096))
        self.batch = self.cards * draw.choice((4, 8, 16))
        # The device.
        self.reach, self.half = draw.uniform(0.5, 0.75), between(2e5, 4e6)
        self.has_fp8 = self.card.model in {"H100", "H200", "RTX 4090"}
        self.fp8, self.fuses, self.launch_s = draw.uniform(0.9, 1.5), draw.uniform(1.0, 1.18), between(3e-6, 1.2e-5)
        self.eager, self.flash = draw.uniform(1.5, 4.0), draw.uniform(0.85, 1.1)
        # The links between cards, and to the host, in bytes per second.
        self.link = between(4e9, 2e10) if self.card.mib < 30_000 else between(4e10, 3e11)
        self.host_link, self.adam = between(6e9, 2.5e10), between(2e9, 2e10)
        self.nccl = {"default": 1.0, "tree": draw.uniform(0.7, 1.15), "more channels": draw.uniform(0.9, 1.25)}
        self.hides, self.latency_s = draw.uniform(0.1, 0.8), between(1e-5, 6e-5)
        self.wait_s, self.odd = between(2e-4, 4e-2), draw.uniform(0.002, 0.012)
        # The run.
        self.start_s, self.compile_s = draw.uniform(20.0, 50.0), draw.uniform(25.0, 80.0)
        self.fragments, self.noise = draw.uniform(1.03, 1.12), draw.uniform(0.02, 0.05)
        self.missing, self.wrong = draw.choice((None, None, "wait", "traffic")), draw.choice((1.0, 1.0, 0.8, 1.2))
        self.space = self._listed(draw)
        self.crashes = self._crashes(draw)

    def _listed(self, draw: random.Random) -> dict[str, ParameterSpec]:
        degrees = tuple(1 << power for power in range(self.cards.bit_length()) if 1 << power <= self.cards)
        some: dict[str, tuple[Value, ...]] = {
            "tensor_parallel": degrees[::-1],
            "pipeline_parallel": degrees,
            "micro_batch": tuple(1 << power for power in range(6) if 1 << power <= self.batch),
            "checkpointing": ("full", "selective", "none"),
            "zero_stage": (1, 0, 2, 3),
            "dtype": ("bf16", "fp8"),
            "compile": (False, True),
        }
        more: dict[str, tuple[Value, ...]] = {
            "attention": ("sdpa", "eager", "flash"),
            "nccl": tuple(self.nccl),
            "offload": (0.0, 0.25, 0.5, 1.0),
            "num_workers": (2, 0, 8),
        }
        names = draw.sample(list(more), draw.choice((1, 2, 2) if self.cards < 8 else (1, 1, 2)))
        some |= {name: more[name] for name in more if name in names}
        return {name: ParameterSpec(choices=values) for name, values in some.items()}

    def _crashes(self, draw: random.Random) -> Mapping[str, Mapping[str, tuple[Value, ...]]]:
        """Return what fails: name → the values of each parameter that fail together."""
        deep, known = (2, 4, 8), self.space
        possible: dict[str, Mapping[str, tuple[Value, ...]]] = {
            "pipeline with ZeRO": {"pipeline_parallel": deep, "zero_stage": (2, 3)},
            "compile with pipeline": {"pipeline_parallel": deep, "compile": (True,)},
            "compile with tensor parallel": {"tensor_parallel": deep, "compile": (True,)},
            "offload without ZeRO": {"offload": (0.25, 0.5, 1.0), "zero_stage": (0,)},
            "fp8 with full recompute": {"dtype": ("fp8",), "checkpointing": ("full",)},
            "flash with fp8": {"attention": ("flash",), "dtype": ("fp8",)},
            "hang: tree with pipeline": {"nccl": ("tree",), "pipeline_parallel": deep},
            "ZeRO 3 with compile": {"zero_stage": (3,), "compile": (True,)},
        }
        usual = {"pipeline with ZeRO": 0.7, "offload without ZeRO": 0.8}
        drawn = {name: rule for name, rule in possible.items() if draw.random() < usual.get(name, 0.25)}
        if not self.has_fp8:
            drawn["no fp8"] = {"dtype": ("fp8",)}
        return {name: rule for name, rule in drawn.items() if set(rule) <= set(known)}

    def ranks(self, config: Config) -> tuple[int, int, int]:
        """Return the tensor, pipeline and data parallel ranks."""
        tensor, pipeline = int(config["tensor_parallel"]), int(config["pipeline_parallel"])
        return tensor, pipeline, self.cards // (tensor * pipeline)

    def holds(self, config: Config) -> bool:
        """Whether the cards and the global batch divide."""
        data = self.ranks(config)[2]
        return data > 0 and self.batch % (data * int(config["micro_batch"])) == 0

    def failure(self, config: Config) -> Failed | None:
        """Return why a launch fails; None where it runs."""
        for name, rule in self.crashes.items():
            if all(config[parameter] in values for parameter, values in rule.items()):
                hangs = name.startswith("hang")
                return (FailureKind.HANG, name, 180.0) if hangs else (FailureKind.CRASH, name, self.start_s)
        share = self.bytes_of(config) / self.free
        if share > 1.0:
            return FailureKind.GPU_OOM, "", self.start_s if share > 1.3 else self._ready_s(config) + 5.0
        slow = _ITERATIONS * self.step_s(config) > LIMITS.max_seconds  # without the start
        return (FailureKind.TOO_SLOW, "", self._ready_s(config) + LIMITS.max_seconds) if slow else None

    def bytes_of(self, config: Config) -> float:
        """Return the peak of memory of the fullest card."""
        tensor, pipeline, data = self.ranks(config)
        stage, size = int(config["zero_stage"]), float(config["micro_batch"])
        mine = self.params / (tensor * pipeline)
        weights = 2.0 * mine / (data if stage == 3 else 1) + (0.5 * mine if config["dtype"] == "fp8" else 0.0)
        gradients = 4.0 * mine / (data if stage >= 2 else 1)
        states = 12.0 * mine / (data if stage else 1) * (1.0 - float(config.get("offload", 0.0)))
        tokens = size * self.length
        scores = 5.0 * 16.0 * size * self.length**2 if config.get("attention") == "eager" else 0.0
        kept = {"full": 2.0, "selective": 34.0, "none": 34.0}[str(config["checkpointing"])] * tokens * self.hidden
        kept += scores if config["checkpointing"] == "none" else 0.0
        kept *= 1.0 if config["checkpointing"] == "full" else 1.0 / tensor
        again = 34.0 * tokens * self.hidden / tensor if config["checkpointing"] == "full" else 0.0
        kept *= 0.85 if config["compile"] else 1.0
        logits = 6.0 * tokens * _VOCABULARY / tensor
        waiting = min(pipeline, self.batch // (data * int(size)))
        gathered = 4.0 * mine / self.layers * 3.0 if stage == 3 else 0.0
        activations = kept * self.layers / pipeline * waiting + again + logits
        return 0.8 * 2**30 + weights + gradients + states + gathered + self.fragments * activations

    def peak_mib(self, config: Config) -> float:
        """Return the peak of the fullest card, with what others use."""
        return (self.bytes_of(config) - self.free) / _MIB + self.card.mib

    def parts(self, config: Config) -> dict[str, float]:
        """Return the seconds of a step: waiting for data, compute, traffic, bubble, optimizer."""
        tensor, pipeline, data = self.ranks(config)
        stage, size, off = int(config["zero_stage"]), float(config["micro_batch"]), float(config.get("offload", 0.0))
        times, mine = self.batch / (data * size), self.params / (tensor * pipeline)
        again = {"full": 4.0 / 3.0, "selective": 1.04, "none": 1.0}[str(config["checkpointing"])]
        tokens, layers = size * self.length, self.layers / pipeline
        width = tokens * self.hidden / tensor
        rate = self.card.half * 1e12 * self.reach * width / (width + self.half)
        rate *= (self.fp8 if config["dtype"] == "fp8" else 1.0) * (self.fuses if config["compile"] else 1.0)
        attends = {"eager": self.eager, "flash": self.flash}.get(str(config.get("attention")), 1.0)
        work = 6.0 * mine * tokens + attends * 12.0 * layers * self.hidden * size * self.length**2 / tensor
        launched_s = layers * 90.0 * self.launch_s * (0.4 if config["compile"] else 1.0)
        compute_s = max(again * work / rate, again * launched_s)
        link = self.link * self.nccl[str(config.get("nccl", "default"))]
        sent = 2.0 * (tensor - 1) / tensor * tokens * self.hidden * 2.0
        tensor_s = 4.0 * layers * again * (sent / link + self.latency_s) if tensor > 1 else 0.0
        edge_s = (tokens * self.hidden * 2.0 / link + self.latency_s) * 2.0 if pipeline > 1 else 0.0
        one_s = compute_s + tensor_s + edge_s
        rounds = {0: 1.0, 1: 1.0, 2: 1.0 + 0.3 * (times - 1), 3: 1.5 * times}[stage] if data > 1 else 0.0
        sent_s = rounds * 2.0 * (data - 1) / data * 2.0 * mine / link
        traffic_s = max(0.0, sent_s - self.hides * 0.6 * times * compute_s) + 0.08 * sent_s
        states = 12.0 * mine / (data if stage else 1)
        optimizer_s = states * (1.0 - off) * 3.0 / (self.card.gb_s * 1e9) + 0.002
        optimizer_s = (
            max(optimizer_s, off * states * (1.0 / self.host_link + 1.0 / (3.0 * self.adam))) if off else optimizer_s
        )
        wait_s = self.wait_s * {0: 4.0, 8: 0.9}.get(int(config.get("num_workers", 2)), 1.0)
        return {
            "wait": wait_s,
            "compute": times * compute_s,
            "traffic": times * (tensor_s + edge_s) + traffic_s,
            "bubble": (pipeline - 1) * one_s,
            "optimizer": optimizer_s,
        }

    def read(self, config: Config, draw: random.Random) -> dict[str, float]:
        """Return the parts as a probe reads them: with noise, one of them missing or wrong by a fifth."""
        read = {name: s * math.exp(draw.gauss(0.0, self.noise)) for name, s in self.parts(config).items()}
        return {
            name: s * (self.wrong if name == "compute" else 1.0) for name, s in read.items() if name != self.missing
        }

    def step_s(self, config: Config) -> float:
        """Return the seconds of a step; each config is off by a little of its own."""
        own = random.Random(f"{self.salt} {sorted(config.items())}").gauss(0.0, self.odd)
        tight = 1.15 if self.bytes_of(config) > 0.96 * self.free else 1.0
        return sum(self.parts(config).values()) * math.exp(own) * tight

    def speed(self, config: Config) -> float:
        """Return the samples per second."""
        return self.batch / self.step_s(config)

    def _ready_s(self, config: Config) -> float:
        reads_s = 2.0 * self.params / 2e9
        compiles_s = self.compile_s if config["compile"] else 0.0
        return self.start_s + reads_s + compiles_s + 2.0 * self.step_s(config)

    def result(self, config: Config, devices: int) -> ProbeResult:
        """Return what a probe of a config shows, without noise."""
        if failed := self.failure(config):
            kind, rule, failed_s = failed
            missing_mib = (self.bytes_of(config) - self.free) / _MIB if kind is FailureKind.GPU_OOM else None
            failure = Failure(kind=kind, rule=rule, detail="", overshoot_mib=missing_mib)
            return ProbeResult(config=config, plan_digest="", started_at="", total_s=failed_s, failure=failure)
        start_s, run_s, speed = self._ready_s(config), max(8.0, _ITERATIONS * self.step_s(config)), self.speed(config)
        scatter = random.Random(f"{self.salt} error {config_digest(config)}").gauss(0.0, 0.25)
        summary = DeviceSummary(
            device="cuda:0",
            source="nvml",
            util_mean_pct=None,
            mem_peak_mib=self.peak_mib(config),
            mem_total_mib=self.card.mib,
        )
        return ProbeResult(
            config=config,
            plan_digest="",
            started_at="",
            total_s=start_s + run_s,
            start_up_s=start_s,
            window_s=run_s,
            trained_s=run_s,
            iterations=_ITERATIONS,
            samples_per_s=speed,
            samples_per_s_se=speed * self.noise * math.exp(scatter),
            devices=(summary,) * devices,
        )
