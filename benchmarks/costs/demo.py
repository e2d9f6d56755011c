"""Is the best of `make optimize` worse than its default? Both run again for two minutes each.

    python -m benchmarks.costs.demo [--study pi_plus] [--seconds 120]

The study has been searched. Of each case, the default and the best run by the plain command, one after the other.
Where the best is the default, nothing runs. Without GPUs, utilisation is the share of time in which a rank computes.
"""

import argparse
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial

from tuner.devices.found import describe_machine
from tuner.export import StudyReader, connect, in_words
from tuner.probe import ProbeResult, value
from tuner.racing.contest import FollowedRun, run_limits
from tuner.running.prober import open_prober, run_in
from tuner.running.workbench import Workbench, open_workbench
from tuner.study import Case, Config


def trained(bench: Workbench, case: Case, config: Config, seconds: float) -> ProbeResult:
    """Run a config by the plain command for so many seconds of training."""
    slot = bench.slot(case, f"demo/{case.name}")
    slot = replace(slot, limits=run_limits(slot.limits, seconds).model_copy(update={"window_seconds": seconds}))
    following = FollowedRun(seconds, lambda: False)
    with closing(open_prober(bench)) as probe:
        return run_in(slot, partial(bench.trainer.plan, case, config), lambda plan: probe(plan, following))


def rows(bench: Workbench, seconds: float) -> Iterator[str]:
    """Yield a row for each config of each case: the objective and samples/s of the long run."""
    by_name = {case.name: case for case in bench.trainer.cases()}
    for view in StudyReader(connect(f"sqlite:///{bench.folder}/study.db"), bench.spec.name).cases:
        best, default = view.best, view.default
        if best is None or default is None or best.launch == default.launch:
            yield f"| {view.name} | the best is the default | | |"
            continue
        for which, one in (("default", default), ("best", best)):
            result = trained(bench, by_name[view.name], one.config, seconds)
            objective, speed = value(result, view.objectives[0]) or 0.0, result.samples_per_s or 0.0
            yield f"| {view.name} | {which}: {in_words(one.config)} | {objective:.1f} | {speed:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", default="pi_plus")
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    bench = open_workbench(options.study)
    print(", ".join(f"{name} {fact}" for name, fact in describe_machine(bench.source).items()))
    print(f"| case | config | {bench.spec.objectives[0]} | samples/s |\n|---|---|---|---|")
    for row in rows(bench, options.seconds):
        print(row, flush=True)


if __name__ == "__main__":
    main()
