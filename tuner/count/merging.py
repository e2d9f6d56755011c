"""Merges the records of a training's processes: the samples of all ranks at each step, and the training itself.

A process writes a record, or point, after some steps of its optimizer: its counts so far. The samples are those that a
witness counts, such as the loader or the trained module. Ranks that train on the same samples form a group, for which
its first rank, the lead, counts. A mark is a step with the samples of all ranks up to it. All is counted from the base
step on. Pure: the caller passes the records in.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import count, pairwise, takewhile
from math import inf, isfinite, sqrt
from operator import itemgetter
from statistics import fmean
from typing import Any, NamedTuple

from tuner.count.process_counts import BASE_STEP, FIRST_STEPS, ProcessCounts, count_in, growth_of_count
from tuner.count.signature import Shares, Signature, TrainingCounts
from tuner.count.witness import ENVIRONMENTS, LOADER, MODULE, Witness, contradiction, witness_in_words, witness_or_why


class Merger:
    """Follows the processes of a training."""

    def __init__(self) -> None:
        """Merge the counts of a training's processes into one."""
        self.processes: dict[str, ProcessCounts] = {}
        """The name of a process → its records."""
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
        self.why_uncounted: str | None = None
        """Why samples are not counted; None while they are, or may be."""

    def feed(self, process: str, record: Mapping[str, Any]) -> None:
        """Take a record of a process into account."""
        self.processes.setdefault(process, ProcessCounts(process)).feed(record)

    @property
    def trainers(self) -> list[ProcessCounts]:
        """The processes that train together, in the order of their ranks, without those that only help one of them.

        Without a process group, these are the processes that train most parameters.
        """
        stepping = [process for process in self.processes.values() if process.trains]
        stepping = [process for process in stepping if not any(map(process.helps, stepping))]
        trainers = [process for process in stepping if process.world > 1]
        if not trainers:
            most = max((process.parameters for process in stepping), default=0)
            trainers = [process for process in stepping if process.parameters == most]
        return sorted(trainers, key=lambda process: process.rank)

    def new_marks(self) -> Iterator[dict[str, Any]]:
        """Yield the new marks, as dictionaries: a step that all ranks have made, its time, and the samples up to it.

        The time `t_s` is that of the leading rank. Where environments count the samples, a mark is a rollout and not a
        step. `pause` says what has interrupted the training since the mark before, if anything has.
        """
        witness = self._checked_witness()
        if witness is None:
            return
        lead = self._leads[0]
        steps_of_all = min(process.steps for process in self._leads)
        for place in range(self._next_place, len(lead.points)):
            point = lead.points[place]
            step = point["steps"]
            if step > steps_of_all:  # another rank has not recorded so many yet
                break
            self._next_place = place + 1
            iteration = point["environments.rollouts"] if witness == ENVIRONMENTS else step
            marked_s = lead.points[self._marked_place]["at_s"] if self._marked_place else -inf
            is_too_soon = point["at_s"] - marked_s < 0.2  # s, as between usual records; first steps come faster
            if step < BASE_STEP or iteration <= self._marked or is_too_soon:  # a rollout may have several steps
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
        return growth_of_count(self._leads, (self._witness or MODULE).count, step)

    def training(self) -> TrainingCounts | None:
        """Return what is trained and what was counted so far; None before it is known what counts the samples."""
        witness, leads = self._witness, self._leads
        if witness is None or leads[0].steps <= BASE_STEP:
            return None
        lead, last = leads[0], leads[0].points[-1]
        # environments count the samples of a rollout; those of an optimizer's step are what the module takes
        step_witness = MODULE if witness == ENVIRONMENTS else witness
        growth = _usual_growth(_totals_of_first_steps(leads, step_witness.count))
        per_step = growth.usual
        by_loader = growth_of_count(leads, LOADER.count, last["steps"])
        by_module = growth_of_count(leads, MODULE.count, last["steps"])
        flops = [process.flops for process in self.trainers]
        flops_are_known = per_step > 0 and None not in flops and witness != ENVIRONMENTS
        newest = [process.points[-1] for process in self.trainers]
        with_card = [point for point in newest if "alloc_retries" in point]  # the ranks whose allocator is CUDA's
        batches_name, is_apart = "loader.batches" if lead.is_fed else "forwards", last.get("is_apart")
        return TrainingCounts(
            signature=self._signature(growth),
            is_early=lead.steps < FIRST_STEPS,
            flops_per_sample=sum(filter(None, flops)) / per_step if flops_are_known else None,
            witness=witness_in_words(witness, by_loader, by_module),
            shares=_shares(lead, witness),
            # two networks that are trained in turn, as in a GAN, add up no batches
            micro_batches=None
            if is_apart
            else _usual_growth(_totals_of_first_steps([lead], batches_name)).usual or None,
            ranks=len(self.trainers),
            data_ranks=len(self._groups),
            passes=last.get("loader.passes") if lead.is_fed else None,
            skipped=last.get("skipped", 0),
            compiled=bool(lead.start.get("compiled")),
            reserved_mib=max((point["reserved_mib"] for point in with_card), default=None),
            torch=str(lead.start.get("torch", "")),
            saves_to=tuple(sorted({folder for point in newest for folder in point.get("saves_to", ())})),
            alloc_retries=sum(point["alloc_retries"] for point in with_card) if with_card else None,
        )

    def _checked_witness(self) -> Witness | None:
        """Return what counts the samples: chosen once all ranks have begun, and checked at each later call.

        None before it can be chosen. None also if nothing counts the samples, for good: then `why_uncounted` says why.
        """
        trainers = self.trainers
        are_complete = bool(trainers) and len(trainers) >= trainers[0].world
        have_all_begun = are_complete and min(process.steps for process in trainers) > BASE_STEP
        error = next((why for process in trainers for why in process.off if why.startswith("steps:")), None)
        if error is not None:  # a process has switched its counting of steps off
            self.why_uncounted, self._witness = error, None
        elif self._witness is not None:
            self.why_uncounted = contradiction(self._leads, self._witness)
            if self.why_uncounted is not None:
                self._witness = None
        elif self.why_uncounted is None and have_all_begun:
            self._groups = _groups(trainers)
            answer = witness_or_why(self._leads) if self._groups else "it is not known which ranks share samples"
            if isinstance(answer, str):
                self.why_uncounted = answer
            else:
                self._witness = answer
        return self._witness

    @property
    def _leads(self) -> list[ProcessCounts]:
        """The ranks that count samples, one for each group of ranks that share theirs. The first one leads."""
        return [group[0] for group in self._groups]

    def _signature(self, samples_of_step: "_Growth") -> Signature:
        """Return what identifies the training, by the records of the first group of ranks."""
        group, lead = self._groups[0], self._leads[0]
        start = lead.start
        precision = lead.points[-1].get("precision", {})
        # ranks that share their samples have parts of the model; a single rank may have shards of it
        is_split = len(group) > 1 or bool(start.get("is_split"))
        losses = () if precision.get("scaled") else _losses(self._groups)  # a scaler multiplies the losses
        inputs = self._inputs_of_step(samples_of_step)
        return Signature(
            samples_per_step=samples_of_step.usual,
            samples_error=samples_of_step.error,
            sample=lead.points[-1].get("form", ""),
            parameters=sum(process.parameters for process in group) if is_split else lead.parameters,
            shapes=str(start.get("shapes", "")),
            is_split=is_split,
            # fused, host and sharded forms compute the same
            optimizer=re.sub(r"^(?:Fused|DeepSpeedCPU|Sharded|Distributed)+", "", str(start.get("optimizer", ""))),
            learning_rate=start.get("learning_rate"),
            weight_decays=tuple(start.get("weight_decays", ())),
            precision=_precision_in_words(start, precision),
            normed=self._samples_of_batch_norm(start),
            copies=lead.points[-1].get("loader.copies") if lead.is_fed else None,
            losses=tuple(takewhile(isfinite, losses)),
            diverges=not all(map(isfinite, losses)),
            added_losses=_usual_growth(_totals_of_first_steps([lead], "backwards")).usual or None,
            seed=start.get("seed"),
            labels=tuple(lead.points[-1].get("loader.labels", ())) if lead.is_fed else (),
            elements_per_step=inputs and inputs.usual,
            elements_error=inputs.error if inputs else 0.0,
        )

    def _inputs_of_step(self, samples_of_step: "_Growth") -> "_Growth | None":
        """Return how many numbers, such as tokens, the inputs of a step have; None where its samples tell its size.

        They do not where samples are gathered up to a number of tokens: their number varies, or a pass has a single row
        of varying length, into which all samples were joined.
        """
        first, last = _first_points(self._leads[0])[0], _first_points(self._leads[0])[-1]
        rows, forwards = (last[name] - first[name] for name in ("rows", "forwards"))
        is_joined = rows == forwards and "?" in last.get("form", "")
        if not samples_of_step.error and not is_joined:
            return None
        return _usual_growth(_totals_of_first_steps(self._leads, "elements"))

    def _samples_of_batch_norm(self, start: Mapping[str, Any]) -> float | None:
        """Return the number of samples over which a batch norm takes its means; None without a batch norm.

        It takes them over the samples of one forward pass: on its rank, or on all ranks where it is synchronised.
        """
        rows_by_forwards = [(point["forwards"], point["rows"]) for point in _first_points(self._leads[0])]
        if not start.get("batch_norm") or rows_by_forwards[0] == rows_by_forwards[-1]:  # no forward pass since
            return None
        groups = len(self._groups) if start["batch_norm"] == "all" else 1  # else each rank takes its own means
        return _usual_growth(rows_by_forwards).usual * groups


def _precision_in_words(start: Mapping[str, Any], precision: Mapping[str, Any]) -> str:
    """Return the types in which a training computes: `float32, autocast bfloat16, TF32`."""
    types = ", ".join(start.get("types", ()))
    autocast = ", ".join(precision.get("autocast", ()))
    has_tf32 = precision.get("tf32") and start.get("device") == "cuda" and "float32" in types
    return types + (f", autocast {autocast}" if autocast else "") + (", TF32" if has_tf32 else "")


def _pause(lead: ProcessCounts, from_place: int, to_place: int, witness: Witness) -> dict[str, Any] | None:
    """Return what interrupted a rank's training between two of its records; None where nothing took 0.2 s (chosen).

    `from_place` and `to_place` are the positions of the records. The result becomes a part of a mark: `what` it was,
    and for an epoch's end, `every` how many steps one comes.
    """
    least_s = 0.2

    def grown(name: str) -> float:
        """Return by how much a count has grown between the two records."""
        return count_in(lead.points[to_place], name) - count_in(lead.points[from_place], name)

    if lead.is_fed and grown("loader.passes") >= 1:
        rows, pass_rows = (count_in(lead.points[-1], name) for name in ("loader.rows", "loader.pass_rows"))
        return {"what": "an epoch's end", "every": lead.steps * pass_rows / rows if rows and pass_rows else None}
    # rollouts run the module without gradients too, and are no evaluations
    if witness != ENVIRONMENTS and grown("evaluates_s") >= least_s:
        return {"what": "an evaluation"}
    return {"what": "a checkpoint"} if grown("saves_s") >= least_s else None


def _losses(groups: Sequence[Sequence[ProcessCounts]]) -> tuple[float, ...]:
    """Return the mean loss of each of the first steps, up to the first step whose loss a group has not recorded.

    The ranks of a group train on the same samples. One of them records the losses: in a pipeline, the last stage.
    """
    losses_by_group = [next((process.losses for process in group if process.losses), {}) for group in groups]
    recorded_steps = takewhile(lambda step: all(step in losses for losses in losses_by_group), count())
    return tuple(fmean(losses[step] for losses in losses_by_group) for step in recorded_steps)


def _totals_of_first_steps(leads: Sequence[ProcessCounts], name: str) -> list[tuple[int, float]]:
    """Return the first steps from the base step on, each with the growth of a count of all ranks from there to it."""
    steps = [BASE_STEP, *(point["steps"] for point in _first_points(leads[0]) if point["steps"] > BASE_STEP)]
    return [(step, growth_of_count(leads, name, step)) for step in steps]


def _first_points(lead: ProcessCounts) -> list[Mapping[str, Any]]:
    """Return the records of the first steps, from the base step on: a warm-up may raise the samples later."""
    place = bisect_left(lead.points, FIRST_STEPS, key=itemgetter("steps"))
    return [point for point in lead.points[: place + 1] if point["steps"] >= BASE_STEP]


class _Growth(NamedTuple):
    """How much a total grows in a step."""

    usual: float
    error: float
    """The standard error of `usual` where steps differ; 0 where it is the growth of most steps."""


def _usual_growth(totals: Sequence[tuple[int, float]]) -> _Growth:
    """Return the most frequent growth of a total in a step, or its mean growth if less than two thirds of them have it.

    For `[(3, 0), (4, 32), (5, 64), (6, 72)]` this is 32. The most frequent growth counts, because an epoch's last batch
    may be smaller, and a step may take a batch that was fetched early.

    Args:
        totals: steps, each with the total up to it.
    """
    growths = [(step - step_before, total - before) for (step_before, before), (step, total) in pairwise(totals)]
    steps_by_growth: Counter[float] = Counter()
    for steps, growth in growths:
        steps_by_growth[round(growth / steps, 6)] += steps  # rounded, so that equal ones meet
    all_steps = steps_by_growth.total()
    usual, usual_steps = steps_by_growth.most_common(1)[0]
    if 3 * usual_steps >= 2 * all_steps:  # a share that a short pass with a smaller last batch has (chosen)
        return _Growth(usual, error=0.0)
    mean = sum(growth for _, growth in growths) / all_steps
    squares = sum((growth - mean * steps) ** 2 for steps, growth in growths)
    return _Growth(mean, error=sqrt(squares * len(growths) / (len(growths) - 1)) / all_steps)


def _groups(trainers: Sequence[ProcessCounts]) -> list[list[ProcessCounts]]:
    """Return groups of ranks that train on the same samples; empty where it is not known which ranks do.

    Ranks of a process group record which part of the samples they train on, their data rank. Where a rank does not, or
    where the processes form no process group, ranks whose inputs have the same sums form a group.
    """
    keys: dict[str, Hashable] = {process.name: process.data_rank for process in trainers}
    form_no_group = trainers[0].world == 1 and len(trainers) > 1
    if form_no_group or None in keys.values():
        common_steps = sorted(set.intersection(*(set(process.inputs) for process in trainers)))
        sums_by_name = {process.name: tuple(process.inputs[step] for step in common_steps) for process in trainers}
        if any(len(set(sums)) < 2 for sums in sums_by_name.values()):  # inputs that never change distinguish no ranks
            return []
        keys = {**sums_by_name}
    groups: dict[Hashable, list[ProcessCounts]] = {}
    # the first of a group must have counted samples: later stages of a pipeline see no inputs
    with_rows_first = sorted(trainers, key=lambda process: not process.points[-1].get("rows"))
    for process in with_rows_first:
        groups.setdefault(keys[process.name], []).append(process)
    return list(groups.values())


def _shares(lead: ProcessCounts, witness: Witness) -> Shares | None:
    """Return the shares of the time since the base step in which a rank did not train; None before a second record."""
    base, last = _first_points(lead)[0], lead.points[-1]
    seconds = last["at_s"] - base["at_s"]
    if seconds <= 0.0:
        return None

    def share(name: str) -> float:
        """Return the growth of a count in seconds as a share of the time, from 0 to 1."""
        return min(1.0, max(0.0, (count_in(last, name) - count_in(base, name)) / seconds))

    return Shares(
        data=share("loader.wait_s") if lead.is_fed else 0.0,
        evaluation=0.0 if witness == ENVIRONMENTS else share("evaluates_s"),
        saves=share("saves_s"),
    )
