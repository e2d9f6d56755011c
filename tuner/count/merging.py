"""Merges what the processes of a training have told: the samples of all ranks at each step, and the training itself.

Pure: the caller passes the records in.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise, takewhile
from math import inf
from operator import itemgetter
from statistics import fmean
from typing import Any

from tuner.count.process_counts import ProcessCounts, number
from tuner.count.signature import Shares, Signature, TrainingCounts

BASE_STEP = 3
"""Counts begin at this step. The module is found at the first step, and its inputs are understood at the second."""
LEAST_PAUSE_S = 0.2
"""A shorter evaluation or save is no pause of its own, in seconds (chosen)."""


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
COMPARED_FROM_STEP = 8
"""From this step on, differing counts of loader and module are compared: at first, loaders give batches of later steps
(chosen)."""
MODULE = Witness(name="module", count="rows")
LOADER = Witness(name="loader", count="loader.rows")
BOTH = Witness(name="loader and module", count="loader.rows")
ENVIRONMENTS = Witness(name="environments", count="environments.steps")
"""An iteration then is a rollout."""


class Merger:
    """Follows the processes of a training."""

    def __init__(self) -> None:
        self.processes: dict[str, ProcessCounts] = {}
        """The name of a process → what it has told."""
        self._marked = 0.0
        """The step or rollout of the last mark."""
        self._next_place = 0
        """The place of the leading rank's next record."""
        self._marked_place = 0
        """The place of the leading rank's record that the last mark was made from; 0 before there is one."""
        self._witness: Witness | None = None
        """What counts the samples; None where that is not known."""
        self._groups: list[list[ProcessCounts]] = []
        """The ranks that train on the same samples, together; the first of each group counts."""
        self.why: str | None = None
        """Why samples are not counted; None while they are, or may be."""

    def feed(self, process: str, record: Mapping[str, Any]) -> None:
        """Take a record of a process into account."""
        self.processes.setdefault(process, ProcessCounts(process)).feed(record)

    @property
    def trainers(self) -> list[ProcessCounts]:
        """The processes that train together, in the order of their ranks.

        Without a process group, these are the processes that train most parameters.
        """
        stepping = [process for process in self.processes.values() if process.trains]
        trainers = [process for process in stepping if process.world > 1]
        if not trainers:
            most = max((process.parameters for process in stepping), default=0)
            trainers = [process for process in stepping if process.parameters == most]
        return sorted(trainers, key=lambda process: process.rank)

    def new_marks(self) -> Iterator[dict[str, Any]]:
        """Yield the new marks: steps or rollouts that all ranks have made, with the samples of all so far."""
        witness = self._checked_witness()
        if witness is None:
            return
        lead = self._leads[0]
        steps_of_all = min(process.steps for process in self._leads)
        for place in range(self._next_place, len(lead.points)):
            point = lead.points[place]
            step = point["steps"]
            if step > steps_of_all:  # another rank has not told so many yet
                break
            self._next_place = place + 1
            iteration = point["environments.rollouts"] if witness == ENVIRONMENTS else step
            marked_s = lead.points[self._marked_place]["at_s"] if self._marked_place else -inf
            is_too_soon = point["at_s"] - marked_s < 0.2  # as often as processes tell their counts
            # several steps may belong to the rollout that was marked last
            if step < BASE_STEP or iteration <= self._marked or is_too_soon:
                continue
            pause = _pause(lead, self._marked_place, place, witness)
            self._marked, self._marked_place = iteration, place
            yield {
                "iteration": iteration,
                "samples": round(self.samples_at(step)),
                "t_s": point["at_s"],
                **({"pause": pause} if pause else {}),
            }

    def samples_at(self, step: float) -> float:
        """Return the samples of all ranks from the base step to a step."""
        return _growth(self._leads, (self._witness or MODULE).count, step)

    def training(self) -> TrainingCounts | None:
        """Return what is trained and what was counted so far; None before it is known what counts the samples."""
        witness, leads = self._witness, self._leads
        if witness is None or leads[0].steps <= BASE_STEP:
            return None
        lead, last = leads[0], leads[0].points[-1]
        # environments count the samples of a rollout; those of an optimizer's step are what the module takes
        step_witness = MODULE if witness == ENVIRONMENTS else witness
        per_step = _usual_growth(_totals(leads, step_witness.count))
        by_loader = _growth(leads, LOADER.count, last["steps"])
        by_module = _growth(leads, MODULE.count, last["steps"])
        flops = [process.flops for process in self.trainers]
        flops_are_known = per_step > 0 and None not in flops and witness != ENVIRONMENTS
        batches_name = "loader.batches" if lead.is_fed else "forwards"
        return TrainingCounts(
            signature=self._signature(per_step),
            flops_per_sample=sum(filter(None, flops)) / per_step if flops_are_known else None,
            witness=_in_words(witness, by_loader, by_module),
            shares=_shares(lead, witness),
            micro_batches=_usual_growth(_totals([lead], batches_name)) or None,
            ranks=len(self.trainers),
            data_ranks=len(self._groups),
            passes=last.get("loader.passes") if lead.is_fed else None,
            steps_per_pass=steps_per_pass(lead),
            skipped=last.get("skipped", 0),
            compiled=bool(lead.start.get("compiled")),
            torch=str(lead.start.get("torch", "")),
            reserved_mib=max(self._allocator_counts("reserved_mib"), default=None),
            alloc_retries=sum(retries) if (retries := self._allocator_counts("alloc_retries")) else None,
        )

    def _allocator_counts(self, name: str) -> list[Any]:
        """Return the newest count `name` of the allocator of each rank with a card."""
        newest = [process.points[-1] for process in self.trainers]
        return [point[name] for point in newest if name in point]

    def _checked_witness(self) -> Witness | None:
        """Find out what counts the samples, or check it again, and return it; None before it is known.

        If it becomes clear that nothing counts them, `why` says why from then on.
        """
        trainers = self.trainers
        error = next((why for process in trainers for why in process.off if why.startswith("steps:")), None)
        if error is not None:
            self.why, self._witness = error, None
        elif self._witness is not None:
            self.why = _contradiction(self._leads, self._witness)
            if self.why is not None:
                self._witness = None
        elif self.why is None and _have_all_begun(trainers):
            self._groups = _groups(trainers)
            answer = _witness_or_why(self._leads) if self._groups else "it is not known which ranks share samples"
            if isinstance(answer, str):
                self.why = answer
            else:
                self._witness = answer
        return self._witness

    @property
    def _leads(self) -> list[ProcessCounts]:
        """The ranks that count samples, one for each group of ranks that share theirs. The first one leads."""
        return [group[0] for group in self._groups]

    def _signature(self, samples_per_step: float) -> Signature:
        """Return what identifies the training, as the first ranks have told it."""
        group, lead = self._groups[0], self._leads[0]
        start = lead.start
        precision = lead.points[-1].get("precision", {})
        # several ranks of a group have parts of the model; a single rank may have shards of it
        is_split = len(group) > 1 or bool(start.get("is_split"))
        return Signature(
            samples_per_step=samples_per_step,
            sample=lead.points[-1].get("form", ""),
            parameters=sum(process.parameters for process in group) if is_split else lead.parameters,
            shapes=str(start.get("shapes", "")),
            is_split=is_split,
            # fused, host and sharded forms compute the same
            optimizer=re.sub(r"^(?:Fused|DeepSpeedCPU|Sharded|Distributed)+", "", str(start.get("optimizer", ""))),
            learning_rate=start.get("learning_rate"),
            weight_decays=tuple(start.get("weight_decays", ())),
            precision=_precision_in_words(start, precision),
            normed=self._normed(start),
            losses=() if precision.get("scaled") else _losses(self._groups),  # a scaler multiplies the losses
        )

    def _normed(self, start: Mapping[str, Any]) -> float | None:
        """Return over how many samples a batch norm of the trained module takes its means; None without one."""
        rows_by_forwards = [(point["forwards"], point["rows"]) for point in _first_points(self._leads[0])]
        if not start.get("batch_norm") or rows_by_forwards[0] == rows_by_forwards[-1]:  # no forward pass since
            return None
        groups = len(self._groups) if start["batch_norm"] == "all" else 1  # else each rank takes its own means
        return _usual_growth(rows_by_forwards) * groups


def _have_all_begun(trainers: Sequence[ProcessCounts]) -> bool:
    """Return whether all ranks of a training have told counts, beyond the base step."""
    if not trainers or len(trainers) < trainers[0].world:
        return False
    return min(process.steps for process in trainers) > BASE_STEP


def _precision_in_words(start: Mapping[str, Any], precision: Mapping[str, Any]) -> str:
    """Return the types in which a training computes: `float32, autocast bfloat16, TF32`."""
    types = ", ".join(start.get("types", ()))
    autocast = ", ".join(precision.get("autocast", ()))
    has_tf32 = precision.get("tf32") and start.get("device") == "cuda" and "float32" in types
    return types + (f", autocast {autocast}" if autocast else "") + (", TF32" if has_tf32 else "")


def _pause(lead: ProcessCounts, from_place: int, to_place: int, witness: Witness) -> dict[str, Any] | None:
    """Return what interrupted a rank's training between its records at two places; None where nothing took long.

    The mark of the later record tells it: `what` it was, and for an epoch's end `every` how many steps it comes.
    """

    def growth(name: str) -> float:
        return number(lead.points[to_place], name) - number(lead.points[from_place], name)

    if lead.is_fed and growth("loader.passes") >= 1:
        return {"what": "an epoch's end", "every": steps_per_pass(lead)}
    # rollouts run the module without gradients too, and are no evaluations
    if witness != ENVIRONMENTS and growth("evaluates_s") >= LEAST_PAUSE_S:
        return {"what": "an evaluation"}
    return {"what": "a checkpoint"} if growth("saves_s") >= LEAST_PAUSE_S else None


def steps_per_pass(lead: ProcessCounts) -> float | None:
    """Return the optimizer steps of a rank's pass over the data; None where no loader with a length feeds it."""
    rows = number(lead.points[-1], "loader.rows")
    pass_rows = number(lead.points[-1], "loader.size")
    return lead.steps * pass_rows / rows if rows and pass_rows and lead.is_fed else None


def _losses(groups: Sequence[Sequence[ProcessCounts]]) -> tuple[float, ...]:
    """Return the mean loss of each of the first steps, as far as all groups have told it.

    One process of a group computes losses: in a pipeline that is its last stage.
    """
    losses_by_group = [next((process.losses for process in group if process.losses), {}) for group in groups]
    # 0, 1, 2, … up to the first step that a group has not told
    told_steps = takewhile(lambda step: all(step in losses for losses in losses_by_group), count())
    return tuple(fmean(losses[step] for losses in losses_by_group) for step in told_steps)


def _growth(leads: Sequence[ProcessCounts], name: str, step: float) -> float:
    """Return by how much a count of all ranks has grown from the base step to a step."""
    return sum(lead.total(name, step) - lead.total(name, BASE_STEP) for lead in leads)


def _totals(leads: Sequence[ProcessCounts], name: str) -> list[tuple[int, float]]:
    """Return the first steps from the base step on, each with the growth of a count of all ranks up to it."""
    steps = [BASE_STEP, *(point["steps"] for point in _first_points(leads[0]) if point["steps"] > BASE_STEP)]
    return [(step, _growth(leads, name, step)) for step in steps]


def _first_points(lead: ProcessCounts) -> list[Mapping[str, Any]]:
    """Return the records of the first steps, from the base step to step 12: a warm-up may raise the samples later."""
    place = bisect_left(lead.points, 12, key=itemgetter("steps"))
    return [point for point in lead.points[: place + 1] if point["steps"] >= BASE_STEP]


def _usual_growth(totals: Sequence[tuple[int, float]]) -> float:
    """Return by how much a total grows in most steps; its mean growth where no growth is that of more than half.

    For `[(3, 0), (4, 32), (5, 64), (6, 72)]` this is 32. An epoch's last batch may be smaller, and a step may take a
    batch that was fetched early.

    Args:
        totals: steps, each with the total up to it.
    """
    steps_by_growth: Counter[float] = Counter()
    for (step_before, total_before), (step, total) in pairwise(totals):
        steps = step - step_before
        steps_by_growth[round((total - total_before) / steps, 6)] += steps  # rounded, so that equal ones meet
    (first_step, first_total), (last_step, last_total) = totals[0], totals[-1]
    all_steps = last_step - first_step
    usual_growth, usual_steps = steps_by_growth.most_common(1)[0]
    return usual_growth if 2 * usual_steps > all_steps else (last_total - first_total) / all_steps


def _groups(trainers: Sequence[ProcessCounts]) -> list[list[ProcessCounts]]:
    """Return groups of ranks that train on the same samples; empty where these are not known.

    Ranks of a process group tell their data rank. Where a rank does not, or where the processes form no group, ranks
    with the same sums of inputs are taken together.
    """
    keys: dict[str, Hashable] = {process.name: process.data_rank for process in trainers}
    form_no_group = trainers[0].world == 1 and len(trainers) > 1
    if form_no_group or None in keys.values():
        common_steps = sorted(set.intersection(*(set(process.inputs) for process in trainers)))
        sums_by_name = {process.name: tuple(process.inputs[step] for step in common_steps) for process in trainers}
        if any(len(set(sums)) < 2 for sums in sums_by_name.values()):  # inputs that never change tell nothing
            return []
        keys = {**sums_by_name}
    groups: dict[Hashable, list[ProcessCounts]] = {}
    # the first of a group must have counted samples: later stages of a pipeline see no inputs
    with_rows_first = sorted(trainers, key=lambda process: not process.points[-1].get("rows"))
    for process in with_rows_first:
        groups.setdefault(keys[process.name], []).append(process)
    return list(groups.values())


def _witness_or_why(leads: Sequence[ProcessCounts]) -> Witness | str | None:
    """Return what counts the samples of a training, or why nothing does; None before it is clear.

    `leads` are the ranks that count, one for each group of ranks that share samples. The training is fed if a loader
    gives a batch to nearly every step of a rank. The first of these cases decides:

    1. The training is not fed, and uses a library of reinforcement learning: environments count, or nothing does.
    2. Loader and module agree: both count.
    3. A loader has given samples, and it is too early to compare them: not clear yet.
    4. The training is not fed, but loaders have given some samples: nothing counts.
    5. The training is not fed: the module counts, or nothing does where its count would mislead.
    6. The training is fed, and loader and module differ: `_loader_or_module` chooses.
    """
    step = min(process.steps for process in leads)
    by_module, by_loader = _growth(leads, MODULE.count, step), _growth(leads, LOADER.count, step)
    is_fed = any(process.is_fed for process in leads) and by_loader > 0
    if not is_fed and any(process.start.get("reuses") for process in leads):  # 1
        are_counted = all(process.points[-1].get("environments") for process in leads)
        why_not = "an optimizer of reinforcement learning uses its samples several times, and no environment is counted"
        return ENVIRONMENTS if are_counted else why_not
    if by_loader and by_module and _agree(by_loader, by_module):  # 2
        return BOTH
    if step < COMPARED_FROM_STEP and any(number(process.points[-1], LOADER.count) for process in leads):  # 3
        return None
    if not is_fed and by_loader > SOMETIMES * by_module:  # 4
        return "a loader feeds only some of the steps, and the module takes other samples"
    if not is_fed:  # 5
        why_not = _contradiction(leads, MODULE) if by_module else _why_unseen(leads)
        return why_not or MODULE
    batches = _growth(leads, "loader.batches", step)  # 6
    batch_size = number(leads[0].points[-1], "loader.each")  # the loaders of all ranks have the same
    return _loader_or_module(by_loader, by_module, batches, batch_size)


def _loader_or_module(by_loader: float, by_module: float, batches: float, batch_size: float) -> Witness:
    """Return which of the loader's and the module's different counts is that of the samples.

    Args:
        by_loader: the samples of the loader's batches.
        by_module: the samples of the module's inputs.
        batches: the loader's batches.
        batch_size: the samples of a batch by the loader's sampler; 0 without one.
    """
    if not by_module:
        return LOADER
    # a batch is a single sample, whose leading dimension the loader has counted
    if batch_size == 1 and _agree(batches, by_module):
        return Witness(name="loader and module", count="loader.batches", remark="a batch is one sample")
    # the data set's entries are whole batches
    times = by_module / by_loader
    if by_loader == batches and times > 1:
        return Witness(name="module", count="rows", remark=f"each of the loader's samples is a batch of {times:.4g}")
    return LOADER


def _in_words(witness: Witness, by_loader: float, by_module: float) -> str:
    """Return what a person reads of a witness, with the samples that loader and module have counted so far."""
    if witness != LOADER or not by_module or not by_loader:
        return f"{witness.name}; {witness.remark}" if witness.remark else witness.name
    if _agree(by_loader, by_module):  # at first they differed by a batch that was fetched ahead
        return BOTH.name
    return f"{LOADER.name}; the module takes {by_module / by_loader:.4g} times as many inputs"


def _agree(count: float, other_count: float) -> bool:
    """Return whether two counts of samples differ by at most 3 %."""
    return abs(count - other_count) <= 0.03 * max(count, other_count)


def _contradiction(leads: Sequence[ProcessCounts], witness: Witness) -> str | None:
    """Return what speaks against a witness that counts; None while nothing does."""
    step = min(process.steps for process in leads)
    # whether a second optimizer trains another network
    is_apart = any(process.points[-1].get("is_apart") for process in leads)
    if witness == MODULE:
        return _why_module_misleads(leads, step, is_apart=is_apart)
    if witness != BOTH or is_apart:  # the module alone does not take all samples then
        return None
    by_loader, by_module = _growth(leads, LOADER.count, step), _growth(leads, MODULE.count, step)
    # loaders may give two batches more than the steps have used
    two_batches = 2.0 * by_loader / max(step - BASE_STEP, 1)
    # counts that have agreed and later differ by more than a tenth (chosen) are not believed
    still_agree = abs(by_loader - by_module) <= max(0.1 * max(by_loader, by_module), two_batches)
    return None if still_agree else "loader and module have agreed at first, and do so no more"


def _why_module_misleads(leads: Sequence[ProcessCounts], step: int, *, is_apart: bool) -> str | None:
    """Return why the module's inputs may not be the samples of the steps; None where nothing speaks for it."""

    def ratio(name: str, base_name: str) -> float:
        """Return a count per another count; `COUNTS` in `tuner_inside/steps.py` says what each of them counts."""
        base = _growth(leads, base_name, step)
        return _growth(leads, name, step) / base if base else 0.0

    if is_apart and ratio("backwards", "steps") > 1 + SOMETIMES:
        return "several networks are trained in turn, and no loader of torch tells the samples"
    if ratio("joint", "backwards") >= USUALLY:
        return "the module runs several times for each loss, and no loader of torch tells the samples"
    # a training that takes one tensor at all steps has all samples in it
    repeats_sometimes = SOMETIMES <= ratio("repeats", "steps") <= 1 - SOMETIMES
    if ratio("again", "forwards") >= SOMETIMES or repeats_sometimes:
        return "the module takes the same samples several times, and no loader of torch tells how often"
    if ratio("unlearnt", "steps") >= USUALLY:
        return "the module also runs without gradients between the steps, so its samples may be used several times"
    return None


def _why_unseen(leads: Sequence[ProcessCounts]) -> str:
    """Return why neither loader nor module has counted samples."""
    reasons = [process.off[0] for process in leads if process.off]
    reasons += [process.points[-1]["why"] for process in leads if process.points[-1].get("why")]
    return reasons[0] if reasons else "the inputs of the trained module are not seen"


def _shares(lead: ProcessCounts, witness: Witness) -> Shares | None:
    """Return how a rank has spent its time since the base step; None before a second record."""
    base, last = _first_points(lead)[0], lead.points[-1]
    seconds = last["at_s"] - base["at_s"]
    if seconds <= 0.0:
        return None

    def share(name: str) -> float:
        return min(1.0, max(0.0, (number(last, name) - number(base, name)) / seconds))

    return Shares(
        data=share("loader.wait_s") if lead.is_fed else 0.0,
        evaluation=0.0 if witness == ENVIRONMENTS else share("evaluates_s"),
        saves=share("saves_s"),
    )
