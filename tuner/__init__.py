"""Finds, for each training case on this machine, the configuration that keeps its GPUs busiest.

The names in `__all__` are the public face, described in `docs/python.md`. Each is loaded when it is first used, so that
`import tuner` and the command line load neither Optuna nor pyarrow before they need them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.errors import StudyError, TunerError
    from tuner.export.recorded_table import Table
    from tuner.optimizing import Result, SpeedGain, optimize
    from tuner.probe.probe_plan import ProbePlan
    from tuner.records.schema import ERROR as ERROR_ATTRIBUTE
    from tuner.records.schema import MEMORY as MEMORY_CONSTRAINT
    from tuner.replay import ReplayedProber
    from tuner.running.events import CaseOutcome, Ending
    from tuner.search.gain.chooser import GainSampler
    from tuner.search.trials import suggest
    from tuner.study.cases import Case
    from tuner.study.space import Parameter, Space
    from tuner.study.study_file import load as load_study
    from tuner.trainers.base import Trainer, check_trainer
    from tuner.trainers.registry import open_trainer

__version__ = "0.1.0"

_HOMES = {
    "ERROR_ATTRIBUTE": "tuner.records.schema:ERROR",
    "MEMORY_CONSTRAINT": "tuner.records.schema:MEMORY",
    "Case": "tuner.study.cases:Case",
    "CaseOutcome": "tuner.running.events:CaseOutcome",
    "Ending": "tuner.running.events:Ending",
    "GainSampler": "tuner.search.gain.chooser:GainSampler",
    "Parameter": "tuner.study.space:Parameter",
    "ProbePlan": "tuner.probe.probe_plan:ProbePlan",
    "ReplayedProber": "tuner.replay:ReplayedProber",
    "Result": "tuner.optimizing:Result",
    "Space": "tuner.study.space:Space",
    "SpeedGain": "tuner.optimizing:SpeedGain",
    "StudyError": "tuner.errors:StudyError",
    "Table": "tuner.export.recorded_table:Table",
    "Trainer": "tuner.trainers.base:Trainer",
    "TunerError": "tuner.errors:TunerError",
    "check_trainer": "tuner.trainers.base:check_trainer",
    "load_study": "tuner.study.study_file:load",
    "open_trainer": "tuner.trainers.registry:open_trainer",
    "optimize": "tuner.optimizing:optimize",
    "suggest": "tuner.search.trials:suggest",
}
"""Public name → where it is, as `module:attribute`."""

__all__ = [
    "ERROR_ATTRIBUTE",
    "MEMORY_CONSTRAINT",
    "Case",
    "CaseOutcome",
    "Ending",
    "GainSampler",
    "Parameter",
    "ProbePlan",
    "ReplayedProber",
    "Result",
    "Space",
    "SpeedGain",
    "StudyError",
    "Table",
    "Trainer",
    "TunerError",
    "check_trainer",
    "load_study",
    "open_trainer",
    "optimize",
    "suggest",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its home (PEP 562). Raises AttributeError for any other name."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
