"""The base class of every trainer: three methods to write, and defaults for what only some trainers know."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.errors import TrainerError
from tuner.probe.plan import ProbePlan, Slot
from tuner.study.cases import Case
from tuner.study.space import LADDER, VARIANT, Config, Value
from tuner.study.spec import TrainerSpec
from tuner.trainers.dependencies import Dependencies

STANDARD = (LADDER, VARIANT, "update_epochs", "batch_size", "num_workers", "prefetch_factor")
"""The parameters of the shipped studies. A trainer accepts each of them or declines it with a reason."""

LEARNING = frozenset({VARIANT, "update_epochs", "batch_size"})
"""The standard parameters that change what is learnt: the network, the updates per sample or the minibatch.

`num_envs` changes the batch too, but every config changes `num_envs`, and a config is compared with the default config
of its own rung.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class LadderEnd:
    """The largest `num_envs` per device that a trainer can run, however much memory the devices have."""

    num_envs: int
    reason: str
    """What limits the number, and what to change to run more environments."""


class Trainer(ABC):
    """A kind of trainer: the cases it knows, the parameters it can vary, and the command that launches it.

    A subclass sets `name` and `accepts` and writes `cases`, `plan` and `fingerprint`. All else has a default.
    `tuner.testing.trainers.check_trainer` checks that a subclass keeps the promises made here.
    """

    name: str
    """The name that tables show and that keeps the results of different trainers apart."""
    accepts: frozenset[str]
    """The parameters that this trainer can vary."""

    def __init__(self, spec: TrainerSpec) -> None:
        """Keep the `trainer` part of the study file. An override may raise TrainerError for options it cannot use."""
        self._spec = spec

    @property
    def declines(self) -> Mapping[str, str]:
        """Standard parameters that this trainer cannot vary → why not, in a few words."""
        return {name: f"{self.name} does not vary it" for name in STANDARD if name not in self.accepts}

    @property
    def needs(self) -> frozenset[str]:
        """The accepted parameters that each study's space must have: all but the standard ones."""
        return self.accepts - frozenset(STANDARD)

    @property
    def learning(self) -> frozenset[str]:
        """The accepted parameters that change what is learnt; the others change throughput alone."""
        return LEARNING & self.accepts

    @property
    def dependencies(self) -> Dependencies | None:
        """The modules that this trainer imports, for `tuner doctor`; None where they are unknown."""
        return None

    def missing_program(self) -> str | None:
        """Return the program that this trainer would start and that does not exist; None where nothing is missing."""
        return None

    @property
    def counts_samples(self) -> bool | None:
        """Whether probes of this trainer know its samples; None where only a probe can tell."""
        return None

    @property
    def score_source(self) -> str:
        """What the score of a race is read from, where a study can choose; empty for the trainer's usual score."""
        return ""

    @property
    def heeds_devices(self) -> bool:
        """Whether the command that this trainer starts depends on which or how many devices there are."""
        return True

    def updates_per_iteration(self, case: Case, config: Config) -> float | None:
        """Return how many minibatches the networks learn from in an iteration on each rank; None where unknown."""
        return None

    def check_value(self, parameter: str, value: Value) -> None:
        """Raise TrainerError for a value that no case can use, whatever the other parameters are."""
        if parameter not in self.accepts:
            raise TrainerError(f"{parameter} {value!r}: {self.name} does not vary {parameter}")

    def ladder_end(self, case: Case) -> LadderEnd | None:
        """Return where the ladder of a case must end.

        None where no end is known, and where a file of the case cannot be read: `plan` reports that file.
        """
        return None

    def samples_at_hand(self, parameter: str, config: Config) -> int | None:
        """Return from how many samples a rank draws its batches with a config; None where that is unknown.

        `parameter` is the batch size that the study lets the tuner work out. Raises TrainerError, with the reason, for
        a parameter that does not count the samples of a batch.
        """
        return None

    @abstractmethod
    def cases(self) -> list[Case]:
        """List all cases, trainable or not. Raises TrainerError when the trainer's files are missing."""

    @abstractmethod
    def plan(self, case: Case, config: Config, slot: Slot) -> ProbePlan:
        """Decide everything about one probe; this reads the trainer's files, but writes and starts nothing.

        Where `slot.to_train` is set, the same launch runs for as long as the trainer's own settings say.
        Raises TrainerError when the case's files cannot be used with this config.
        """

    @abstractmethod
    def fingerprint(self) -> dict[str, str]:
        """Return what results of this trainer must share to be comparable: `name`, and the options that matter."""

    def session_key(self, case: Case, config: Config) -> str | None:
        """Return the name of the session that can serve this config; None where there are no sessions.

        Configs with equal keys can share one started trainer.
        """
        return None

    def warm_plan(self, case: Case, config: Config, slot: Slot) -> ProbePlan | None:
        """Decide the same probe as one run of a session; None where there are no sessions. Raises as `plan` does.

        The program that serves the session reports progress and takes requests as `tuner.progress` does.
        """
        return None
