"""What counts the samples of a training, its witness: a loader, the trained module, both alike, or its environments.

A process writes a record, or point, after some steps of its optimizer: its counts so far. Of each group of ranks that
train on the same samples, the first one counts, the lead. Pure.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tuner.count.process_counts import BASE_STEP, FIRST_STEPS, ProcessCounts, count_in, growth_of_count


@dataclass(frozen=True, kw_only=True, slots=True)
class Witness:
    """What counts the samples of a training: its loader, the trained module, both alike, or its environments."""

    name: str
    count: str
    """The name of its count in a record, such as `loader.rows`."""
    remark: str = ""
    """Why this witness was taken, where others say something else."""


USUALLY = 0.5
"""What happens at this share of the steps or more is usual in a training (chosen)."""
SOMETIMES = 0.05
"""What happens at less than this share of the steps is an exception (chosen)."""
MODULE = Witness(name="module", count="rows")
LOADER = Witness(name="loader", count="loader.rows")
BOTH = Witness(name="loader and module", count="loader.rows")
ENVIRONMENTS = Witness(name="environments", count="environments.steps")
"""An iteration then is a rollout."""


def witness_or_why(leads: Sequence[ProcessCounts]) -> Witness | str | None:
    """Return what counts the samples of a training; a text that says why nothing does; or None before it is clear.

    The training is fed if a loader gives a batch to nearly every step of a rank. The first of these cases decides:

    1. The training is not fed, and uses a library of reinforcement learning: environments count, or nothing does.
    2. Loader and module have counted the same: both count.
    3. A loader has given samples, and it is too early to compare them: not clear yet.
    4. The training is not fed, but loaders have given some samples: nothing counts.
    5. The training is not fed: the module counts, or nothing does where its count would mislead.
    6. The training is fed, and loader and module differ: `_loader_or_module` chooses.
    """
    step = min(process.steps for process in leads)
    by_module, by_loader = growth_of_count(leads, MODULE.count, step), growth_of_count(leads, LOADER.count, step)
    is_fed = any(process.is_fed for process in leads) and by_loader > 0
    if not is_fed and any(process.start.get("uses_rl_library") for process in leads):  # 1
        are_counted = all(process.points[-1].get("environments") for process in leads)
        why_not = "an optimizer of reinforcement learning uses its samples several times, and no environment is counted"
        return ENVIRONMENTS if are_counted else why_not
    if by_loader and by_module and _agree(by_loader, by_module):  # 2
        return BOTH
    has_loaded = any(count_in(process.points[-1], LOADER.count) for process in leads)
    if has_loaded and step < 8:  # 3: at first, loaders give batches of later steps (8 is chosen)
        return None
    if not is_fed and by_loader > SOMETIMES * by_module:  # 4
        return "a loader feeds only some of the steps, and the module takes other samples"
    if not is_fed:  # 5
        why_not = contradiction(leads, MODULE) if by_module else _why_unseen(leads)
        return why_not or MODULE
    batches = growth_of_count(leads, "loader.batches", step)  # 6
    batch_size = count_in(leads[0].points[-1], "loader.batch_size")  # the loaders of all ranks have the same
    return _loader_or_module(by_loader, by_module, batches, batch_size)


def _loader_or_module(by_loader: float, by_module: float, batches: float, batch_size: float) -> Witness:
    """Return whether the loader or the module counts the samples, where their counts differ.

    Args:
        by_loader: the samples of the loader's batches.
        by_module: the samples of the module's inputs.
        batches: the loader's batches.
        batch_size: the samples of a batch by the loader's sampler; 0 without one.
    """
    if not by_module:
        return LOADER
    # the loader has counted another dimension of a single sample, or a part of the batch alone
    if _agree(batches * (batch_size or 1), by_module):
        size = "one sample" if batch_size <= 1 else f"{batch_size:g} samples, in parts"
        return Witness(name="loader and module", count="rows", remark=f"a batch is {size}")
    # the data set's entries are whole batches
    times = by_module / by_loader
    if by_loader == batches and times > 1:
        return Witness(name="module", count="rows", remark=f"each of the loader's samples is a batch of {times:.4g}")
    return LOADER


def witness_in_words(witness: Witness, by_loader: float, by_module: float) -> str:
    """Return a witness in words for a person; `by_loader` and `by_module` are the samples counted by each so far."""
    if witness != LOADER or not by_module or not by_loader:
        return f"{witness.name}; {witness.remark}" if witness.remark else witness.name
    if _agree(by_loader, by_module):  # at first they differed by a batch that was fetched ahead
        return BOTH.name
    return f"{LOADER.name}; the module takes {by_module / by_loader:.4g} times as many inputs"


def _agree(count: float, other_count: float) -> bool:
    """Return whether two counts of samples differ by at most 3 %."""
    return abs(count - other_count) <= 0.03 * max(count, other_count)


def contradiction(leads: Sequence[ProcessCounts], witness: Witness) -> str | None:
    """Return in words why the chosen witness does not count the samples after all; None as long as nothing shows it.

    `witness`: what was chosen to count the samples: the loader or the module. `leads`: of each group of ranks with the
    same samples, the process that leads it.
    """
    step = min(process.steps for process in leads)
    # whether a second optimizer trains another network
    is_apart = any(process.points[-1].get("is_apart") for process in leads)
    if witness == MODULE:
        return _why_module_misleads(leads, step, is_apart=is_apart)
    if witness != BOTH or is_apart:  # no two counts that should agree: the other network takes samples of its own
        return None
    by_loader, by_module = growth_of_count(leads, LOADER.count, step), growth_of_count(leads, MODULE.count, step)
    # loaders may give two batches more than the steps have used
    two_batches = 2.0 * by_loader / max(step - BASE_STEP, 1)
    # counts that have agreed and later differ by more than a tenth (chosen) are not believed
    still_agree = abs(by_loader - by_module) <= max(0.1 * max(by_loader, by_module), two_batches)
    return None if still_agree else "loader and module have agreed at first, and do so no more"


def _why_module_misleads(leads: Sequence[ProcessCounts], step: int, *, is_apart: bool) -> str | None:
    """Return why the rows that the module takes may not be the samples of the steps; None where nothing shows it.

    `is_apart`: whether a second optimizer trains another network.
    """

    def ratio(name: str, base_name: str) -> float:
        """Return the growth of one count per growth of another; `tuner_inside/tally.py` explains its `COUNTS`."""
        base = growth_of_count(leads, base_name, step)
        return growth_of_count(leads, name, step) / base if base else 0.0

    # before so many steps, a single exception is more than sometimes; 0 where forward passes are not recorded
    lacks_calls = step >= BASE_STEP + 1 / SOMETIMES and 0 < ratio("forwards", "steps") < 1 - SOMETIMES
    # steps that begin with the last tensor of the step before; if all do, this tensor holds all samples
    inputs_repeat_sometimes = SOMETIMES <= ratio("repeated_inputs", "steps") <= 1 - SOMETIMES
    writes = ratio("generations", "steps") >= SOMETIMES and growth_of_count(leads, "generations", step) > 1
    reasons = (
        (lacks_calls, "some steps train without a call of the module"),
        (step >= FIRST_STEPS and _varies_alone(leads[0]), "the first dimension of the inputs alone varies"),
        (is_apart and ratio("backwards", "steps") > 1 + SOMETIMES, "several networks are trained in turn"),
        # backward passes that come after several forward passes
        (ratio("joint_backwards", "backwards") >= USUALLY, "the module runs several times for each loss"),
        (
            ratio("repeated_forwards", "forwards") >= SOMETIMES
            or inputs_repeat_sometimes,  # in one step, or in several
            "the module takes the same samples several times",
        ),
        (
            ratio("no_gradient_forwards", "steps") >= USUALLY or writes,  # in training mode, or in any
            "the module also runs without gradients between the steps, as to make its samples",
        ),
    )
    why = next((reason for holds, reason in reasons if holds), None)
    return why and f"{why}, and no loader of torch tells the samples"


def _varies_alone(lead: ProcessCounts) -> bool:
    """Return whether the first dimension of the inputs varies from step to step, and no other one does.

    It may be that of time, of the nodes of graphs, or of joined samples, and not that of the samples.
    """
    first_points = [point for point in lead.points if BASE_STEP <= point["steps"] <= FIRST_STEPS]
    sizes = Counter(count_in(point, "rows") - count_in(before, "rows") for before, point in pairwise(first_points))
    most_frequent = max(sizes.values(), default=0)
    other_sizes = lead.points[-1].get("form", "").partition(" ")[0].split("x")
    # the last batch of a pass may be smaller, and batches of pictures may vary (all numbers are chosen)
    varies = len(sizes) > 2 and 3 * most_frequent < 2 * sizes.total()
    return varies and len(other_sizes) < 3 and "?" not in other_sizes


def _why_unseen(leads: Sequence[ProcessCounts]) -> str:
    """Return why neither loader nor module has counted samples."""
    reasons = [process.off[0] for process in leads if process.off]
    reasons += [process.points[-1]["why"] for process in leads if process.points[-1].get("why")]
    return reasons[0] if reasons else "the inputs of the trained module are not seen"
