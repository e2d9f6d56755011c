"""The project's own samplers on a table, as its loop drives them."""

from collections.abc import Callable
from dataclasses import replace

import optuna
from optuna.study import Study
from optuna.trial import Trial

from benchmarks.search.searching import Probing, Step
from tuner.kept.names import COST, ERROR, FAILURE, MEASURED_ON, WARM
from tuner.kept.trial import MEMORY_SHARE, RUN_S, START_S
from tuner.search.gain.outlook import Outlook
from tuner.search.gain.sampler import GainSampler
from tuner.search.sampler import CaseSampler, ConfigSampler
from tuner.search.telling import tell
from tuner.search.trials import suggest
from tuner.study.space import Config
from tuner.study.spec import SearchSpec

Best = Callable[[Study], Config | None]


def search(probing: Probing, sampler: CaseSampler, best: Best | None = None) -> None:
    """Search until the sampler has nothing left, then measure the best by the plain command, as a study does.

    `best` tells what a sampler believes to be the best, where that is not what reads best.
    """
    study = optuna.create_study(direction="maximize", sampler=sampler)
    sampler.price = probing.price

    def probe(*, cold: bool = False) -> None:
        trial = study.ask()
        config = suggest(trial, probing.ground.space)
        again = any(step.config == config for step in probing.steps)
        _tell(study, trial, probing, probing.probe(config, cold=cold, confirms=again))
        if best is not None:
            probing.recommended[-1] = best(study)

    while True:
        if not sampler.exhausted(study):
            probe()
        elif confirmed := sampler.unconfirmed(study):
            sampler.forced = confirmed
            probe(cold=True)
        else:
            break


def gain(probing: Probing, outlook: type[Outlook] = Outlook) -> None:
    """Probe what gains most per second."""
    sampler = GainSampler(probing.ground.space, probing.ground.header.limits, outlook=outlook)
    search(probing, sampler, sampler.best)


def tpe(probing: Probing) -> None:
    """Probe the seeds, then what TPE draws."""
    search(probing, ConfigSampler(probing.ground.space, SearchSpec(seed=probing.seed)))


def _tell(study: Study, trial: Trial, probing: Probing, step: Step) -> None:
    verdict, result = step.row.verdict, step.row.result
    facts = {ERROR: verdict.error, WARM: step.warm, MEASURED_ON: step.devices}
    if result.failure:
        facts[FAILURE] = result.failure.kind
    else:
        seconds = step.gpu_s / probing.ground.devices
        shares = [
            one.mem_peak_mib / one.mem_total_mib for one in result.devices if one.mem_peak_mib and one.mem_total_mib
        ]
        took = {MEMORY_SHARE: max(shares, default=None), START_S: seconds - step.row.run_s, RUN_S: step.row.run_s}
        facts[COST] = {name: amount for name, amount in took.items() if amount}
    for name, fact in facts.items():
        if fact:
            trial.set_user_attr(name, fact)
    tell(study, trial, replace(verdict, value=step.reading))
