"""Invented scripts that wait for their data: a few workers decide, and most other choices are ties that noise hides.

No number here was measured. Samples per second grow with the workers up to what the script can take, and the range of
the workers grows. What the queue of a loader holds, and some switches, change the speed by a fraction of a percent. A
reading scatters by 0.5 to 4 %. Probes are short, as those of small scripts are.

Even seeds are the half to develop on, odd seeds the half to report.
"""

import math
import random
from functools import cache

from benchmarks.search.script_kinds import space_of
from benchmarks.search.searching import invented_header
from tuner.export.recorded_table import Recorded, Table
from tuner.probe.probe_plan import Device
from tuner.probe.result import ProbeResult
from tuner.study.space import Config
from tuner.study.spec import ParameterSpec


@cache
def table(seed: int) -> Table:
    """Return the table of this seed."""
    drawn = _Drawn(random.Random(f"tie {seed}"))
    device = Device(name="cpu:0", model="Xeon", mem_total_mib=None)
    header = invented_header("ties", f"tie_{seed}", drawn.space, (device,))
    return Table(header, [Recorded(result=drawn.result(config)) for config in space_of(drawn.space).configs()])


class _Drawn:
    """A script while it is drawn. Times are in seconds."""

    def __init__(self, draw: random.Random) -> None:
        yes_no = ParameterSpec(choices=(False, True))
        grow, batch = draw.choice((32, 64)), ParameterSpec(choices=(32,))
        some = ("pin_memory", "persistent_workers", "non_blocking", "cudnn_benchmark")
        queue = ParameterSpec.model_validate({"choices": (2, 4, 8), "when": {"workers": {"min": 1}}})
        self.space = {"workers": ParameterSpec(choices=(0, 2, 4, 8), grow=grow), "prefetch_factor": queue}
        self.space |= dict.fromkeys(draw.sample(some, draw.randint(0, 3)), yes_no) | {"batch_size": batch}
        self.salt, self.tie = draw.random(), draw.choice((0.0, 0.001, 0.003))
        self.noise = math.exp(draw.uniform(math.log(0.005), math.log(0.04)))
        self.enough = math.exp(draw.uniform(math.log(1.0), math.log(2.0 * grow)))
        self.start_s, self.run_s = draw.uniform(2.0, 20.0), draw.uniform(5.0, 12.0)

    def result(self, config: Config) -> ProbeResult:
        """Return what a probe of a config measures, and the standard error that it reports."""
        own, workers = random.Random(f"{self.salt} {sorted(config.items())}"), float(config["workers"])
        speed = 190.0 * max(workers, 1.0) / (1.0 + (max(workers, 1.0) / self.enough) ** 6) ** (1.0 / 6.0)
        total_s, speed = self.start_s + self.run_s, speed * math.exp(own.gauss(0.0, self.tie))
        return ProbeResult(
            config=config,
            plan_digest="",
            started_at="",
            total_s=total_s,
            start_up_s=self.start_s,
            window_s=self.run_s,
            iterations=16,
            samples_per_s=speed,
            samples_per_s_se=speed * self.noise * math.exp(own.gauss(0.0, 0.35)),
        )
