"""Training cases: the trainings that a trainer knows, which of them a study asks for, and which are alike.

A search of one case learns from the results of cases that are like it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from textwrap import shorten

from tuner.errors import StudyError

FILES = ("agent_config", "env_config", "engine_config")
"""The options that name a case's files, where the trainer does not list others; each is a column of the manifest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One training job of a trainer.

    The trainer says which method and which robot the case has. Where it says neither, the name does: MimicKit's
    `amp_location_humanoid` has the method `amp` and the words `location` and `humanoid`.
    """

    name: str
    mode: str = "train"
    trainable: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    """What the trainer needs to launch the case, and the names of its files."""
    fault: str = ""
    """Why the case cannot run, as far as its files show; empty if nothing is known to be wrong."""
    files: tuple[str, ...] = FILES
    """The options that name the case's files, for the manifest."""
    method: str = ""
    """The learning method; tables group cases by it."""
    robot: tuple[str, ...] = ()
    """The words that name robot and task. Cases that share most of these words learn from each other."""

    def __post_init__(self) -> None:
        """Read method and robot from the words of the name where the trainer gives neither."""
        if not (self.method or self.robot):
            method, *robot = self.name.split("_")
            object.__setattr__(self, "method", method)
            object.__setattr__(self, "robot", tuple(robot))


def globs_of(options: Iterable[str]) -> list[str]:
    """Return the globs over cases in all options `--cases`, each of which may have several, separated by commas."""
    globs = (glob.strip() for option in options for glob in option.split(","))
    return [glob for glob in globs if glob]


def select(cases: Sequence[Case], patterns: Iterable[str]) -> list[Case]:
    """Return the trainable cases that match any of the `patterns`, in the order of `cases`.

    A pattern is a glob over names, or the path of an argument file: `args/amp_toy_args.txt` stands for `amp_toy`.

    Raises StudyError naming every pattern that matches no trainable case.
    """
    trainable = {case.name: case for case in cases if case.trainable}
    chosen: set[str] = set()
    without_match: list[str] = []
    not_trainable: list[str] = []
    for pattern in patterns:
        matched = [case for case in cases if is_meant(case.name, pattern)]
        if not any(case.trainable for case in matched):
            without_match.append(pattern)
            reasons = [case.fault if case.mode == "train" else f"mode {case.mode}" for case in matched]
            not_trainable += [f"{case.name} is no training ({why})" for case, why in zip(matched, reasons, strict=True)]
        chosen |= {case.name for case in matched}
    if without_match:
        known = ", ".join(trainable) or "none"
        why = shorten(f"; {', '.join(not_trainable)}", 400, placeholder=" …") if not_trainable else ""
        raise StudyError(
            f"no trainable case matches {', '.join(map(repr, without_match))}{why}; "
            f"this trainer knows {shorten(known, 200, placeholder=' …')} (`tuner cases` lists them)"
        )
    return [case for name, case in trainable.items() if name in chosen]


def is_meant(name: str, pattern: str) -> bool:
    """Return whether a pattern, as `select` takes it, matches the name of a case."""
    glob = pattern.removesuffix(".txt")
    return fnmatchcase(name, glob) or fnmatchcase(name, glob.rpartition("/")[2].removesuffix("_args"))


def search_order(cases: Sequence[Case]) -> list[Case]:
    """Return cases in the order in which to search them, so that later searches can start from earlier results.

    The next case is always one with a new method and a new robot, or else with one of the two new. So for a later case,
    there is an earlier one with its method, and one with its robot. Equals keep their order.
    """
    left, ordered = list(cases), list[Case]()
    while left:
        newest = max(left, key=lambda case: _novelty(case, ordered))
        left.remove(newest)
        ordered.append(newest)
    return ordered


def _novelty(case: Case, earlier: Sequence[Case]) -> int:
    """Return how many of a case's method and robot are new, compared with the `earlier` cases: 2, 1 or 0."""
    has_new_method = case.method not in {known.method for known in earlier}
    has_new_robot = not any(_same_robot(case, known) for known in earlier)
    return int(has_new_method) + int(has_new_robot)


def _same_robot(case: Case, second: Case) -> bool:
    """Return whether two cases share half of the words of robot and task, as `pi_plus` and `pi_plus_ppo` do."""
    return _share_in_common(case, second) >= 0.5


def _share_in_common(case: Case, second: Case) -> float:
    """Return the Jaccard index of the words of two robots and tasks: common words over all words, from 0 to 1."""
    words, second_words = set(case.robot), set(second.robot)
    return len(words & second_words) / max(len(words | second_words), 1)


def similarity(case: Case, second: Case) -> tuple[int, float] | None:
    """Return a sort key that is larger for cases that are more alike; None where they share neither method nor robot.

    Its first number is 3 for the same method and robot, 2 for the same robot, and 1 for the same method. The second,
    from 0 to 1, is the share of the words of robot and task that both have.
    """
    kind = 2 * int(_same_robot(case, second)) + int(case.method == second.method)
    return (kind, _share_in_common(case, second)) if kind else None


def most_similar(case: Case, cases: Iterable[Case]) -> list[str]:
    """Return the names of the other cases that are like this one, the most alike first, equals in their order."""
    similarity_of = {second.name: similarity(case, second) for second in cases if second.name != case.name}
    similar = {name: value for name, value in similarity_of.items() if value is not None}
    return sorted(similar, key=similar.__getitem__, reverse=True)
