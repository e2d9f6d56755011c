"""Merges what the processes of a training have told: the samples of all ranks at each step, and the training itself.

Pure: the caller passes the records in.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise, takewhile
from operator import itemgetter
from statistics import fmean
from typing import Any

from tuner.count.process_counts import ProcessCounts, number
from tuner.count.signature import Shares, Signature, TrainingCounts

BASE_STEP = 3
"""Counts begin at this step. The module is found at the first step, and its inputs are understood at the second."""
LEAST_PAUSE_S = 0.2
"""A shorter evaluation or save is no pause of its own, in seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Witness:
    """What counts the samples."""

    name: str
    count: str
    """The name of the count in a record."""
    remark: str = ""
    """Why this witness was taken, where others say something else."""


USUALLY = 0.5
"""What happens at this share of the steps or more is usual in a training."""
SOMETIMES = 0.05
"""What happens at less than this share of the steps is an exception."""
MODULE = Witness(name="module", count="rows")
LOADER = Witness(name="loader", count="loader.rows")
BOTH = Witness(name="loader and module", count="loader.rows")
ENVIRONMENTS = Witness(name="environments", count="environments.steps")
"""An iteration then is a rollout."""


class Merger:
    """Follows the processes of a training."""

    def __init__(self) -> None:
        self.processes: dict[str, ProcessCounts] = {}
        self._told = 0.0
        """The last step or rollout that a mark was told for."""
        self._next = self._before = 0
        """The place of the leading rank's next record, and of the one of the last mark."""
        self._witness: Witness | None = None
        self._groups: list[list[ProcessCounts]] = []
        """The ranks that train on the same samples, together; the first of each group counts."""
        self.why: str | None = None
        """Why samples are not counted; None while they are, or may be."""

    def feed(self, process: str, record: Mapping[str, Any]) -> None:
        """Take a record of a process into account."""
        self.processes.setdefault(process, ProcessCounts(process)).feed(record)

    @property
    def trainers(self) -> list[ProcessCounts]:
        """The processes whose optimizer steps, in the order of their ranks."""
        stepping = [process for process in self.processes.values() if process.trains]
        joined = [process for process in stepping if process.world > 1]
        most = max((process.parameters for process in stepping), default=0)
        chosen = joined or [process for process in stepping if process.parameters == most]
        return sorted(chosen, key=lambda process: process.rank)

    def marks(self) -> Iterator[dict[str, Any]]:
        """Yield the new marks: steps or rollouts that all ranks have made, with the samples of all so far."""
        witness = self._decided()
        if witness is None:
            return
        lead = self._leads[0]
        reached = min(process.steps for process in self._leads)
        for place in range(self._next, len(lead.points)):
            point, step = lead.points[place], lead.points[place]["steps"]
            if step > reached:
                break
            self._next = place + 1
            iteration = point["environments.rollouts"] if witness == ENVIRONMENTS else step
            is_soon = bool(self._before) and point["at_s"] - lead.points[self._before]["at_s"] < 0.2  # seconds
            if step < BASE_STEP or iteration <= self._told or is_soon:
                continue
            pause = _pause(lead, self._before, place, witness)
            self._told, self._before = iteration, place
            yield {
                "iteration": iteration,
                "samples": round(self.samples_at(step)),
                "t_s": point["at_s"],
                **({"pause": pause} if pause else {}),
            }

    def samples_at(self, step: float) -> float:
        """Return the samples of all ranks from the base step to a step."""
        return _grown(self._leads, (self._witness or MODULE).count, step)

    def training(self) -> TrainingCounts | None:
        """Return what is trained and what was counted so far; None before it is known what counts the samples."""
        leads = self._leads
        if self._witness is None or leads[0].steps <= BASE_STEP:
            return None
        lead, last = leads[0], leads[0].points[-1]
        by_environments = self._witness == ENVIRONMENTS
        per_step = _usual(_totals(leads, (MODULE if by_environments else self._witness).count))
        counts = [_grown(leads, counter.count, last["steps"]) for counter in (LOADER, MODULE)]
        flops = [process.flops for process in self.trainers]
        is_known = per_step > 0 and None not in flops and not by_environments
        return TrainingCounts(
            signature=self._signature(per_step),
            flops_per_sample=sum(filter(None, flops)) / per_step if is_known else None,
            witness=_in_words(self._witness, *counts),
            shares=_shares(lead, self._witness),
            micro_batches=_usual(_totals([lead], "loader.batches" if lead.is_fed else "forwards")) or None,
            ranks=len(self.trainers),
            data_ranks=len(self._groups),
            passes=last.get("loader.passes") if lead.is_fed else None,
            steps_per_pass=steps_per_pass(lead),
            skipped=last.get("skipped", 0),
            compiled=bool(lead.start.get("compiled")),
            torch=str(lead.start.get("torch", "")),
            reserved_mib=max(self._of_allocators("reserved_mib"), default=None),
            alloc_retries=sum(retries) if (retries := self._of_allocators("alloc_retries")) else None,
        )

    def _of_allocators(self, name: str) -> list[Any]:
        """Return what the ranks with a card have told last of their allocators."""
        newest = [process.points[-1] for process in self.trainers]
        return [point[name] for point in newest if name in point]

    def _decided(self) -> Witness | None:
        """Return what counts the samples; None before that is known, and where nothing does."""
        trainers = self.trainers
        off = next((why for process in trainers for why in process.off if why.startswith("steps:")), None)
        if off is not None:
            self.why, self._witness = off, None
        elif self._witness is not None:
            self.why = _contradiction(self._leads, self._witness)
            self._witness = None if self.why else self._witness
        elif (
            self.why is None
            and trainers
            and len(trainers) >= trainers[0].world
            and min(process.steps for process in trainers) > BASE_STEP
        ):
            self._groups = _groups(trainers)
            witness = _witness(self._leads) if self._groups else "which ranks train on the same samples is not known"
            self.why, self._witness = (witness, None) if isinstance(witness, str) else (None, witness)
        return self._witness

    @property
    def _leads(self) -> list[ProcessCounts]:
        """The first of each group, which counts."""
        return [group[0] for group in self._groups]

    def _signature(self, samples_per_step: float) -> Signature:
        group, lead = self._groups[0], self._leads[0]
        start = lead.start
        precision = lead.points[-1].get("precision", {})
        types = ", ".join(start.get("types", ()))
        cast = ", ".join(precision.get("autocast", ()))
        tf32 = ", TF32" if precision.get("tf32") and start.get("device") == "cuda" and "float32" in types else ""
        is_split = len(group) > 1 or bool(start.get("is_split"))
        return Signature(
            samples_per_step=samples_per_step,
            sample=lead.points[-1].get("form", ""),
            parameters=sum(process.parameters for process in group) if is_split else lead.parameters,
            shapes=str(start.get("shapes", "")),
            is_split=is_split,
            # the words for fused, host and sharded forms, which compute the same
            optimizer=re.sub(r"^(?:Fused|DeepSpeedCPU|Sharded|Distributed)+", "", str(start.get("optimizer", ""))),
            learning_rate=start.get("learning_rate"),
            weight_decays=tuple(start.get("weight_decays", ())),
            precision=f"{types}{f', autocast {cast}' if cast else ''}{tf32}",
            normed=self._normed(start),
            losses=() if precision.get("scaled") else _losses(self._groups),
        )

    def _normed(self, start: Mapping[str, Any]) -> float | None:
        """Return over how many samples a batch norm of the trained module takes its means; None without one."""
        lead = self._groups[0][0]
        points = [(point["forwards"], point["rows"]) for point in _firsts(lead)]
        if not start.get("batch_norm") or points[0] == points[-1]:
            return None
        return _usual(points) * (len(self._groups) if start["batch_norm"] == "all" else 1)


def _pause(lead: ProcessCounts, before: int, place: int, witness: Witness) -> dict[str, Any] | None:
    """Return what a rank did between two records beside training; None where it was too short to matter.

    Environments are stepped without gradients for training too, so this tells no evaluation there.
    """

    def grown(name: str) -> float:
        return number(lead.points[place], name) - number(lead.points[before], name)

    if lead.is_fed and grown("loader.passes") >= 1:
        return {"what": "an epoch's end", "every": steps_per_pass(lead)}
    if witness != ENVIRONMENTS and grown("evaluates_s") >= LEAST_PAUSE_S:
        return {"what": "an evaluation"}
    return {"what": "a checkpoint"} if grown("saves_s") >= LEAST_PAUSE_S else None


def steps_per_pass(lead: ProcessCounts) -> float | None:
    """Return the optimizer steps of a rank's pass over the data; None where no loader with a length feeds it."""
    rows, size = (number(lead.points[-1], f"loader.{name}") for name in ("rows", "size"))
    return lead.steps * size / rows if rows and size and lead.is_fed else None


def _losses(groups: Sequence[Sequence[ProcessCounts]]) -> tuple[float, ...]:
    """Return the mean loss of each of the first steps, up to one that some rank has not told.

    Of a group, the process counts that computes losses: the last stage of a pipeline has them.
    """
    losses_by_group = [next((process.losses for process in group if process.losses), {}) for group in groups]
    steps = takewhile(lambda step: all(step in losses for losses in losses_by_group), count())
    return tuple(fmean(losses[step] for losses in losses_by_group) for step in steps)


def _grown(leads: Sequence[ProcessCounts], name: str, step: float) -> float:
    """Return by how much a count of all ranks has grown from the base step to a step."""
    return sum(lead.total(name, step) - lead.total(name, BASE_STEP) for lead in leads)


def _totals(leads: Sequence[ProcessCounts], name: str) -> list[tuple[int, float]]:
    """Return the first steps from the base step on, each with what was counted up to it."""
    steps = [BASE_STEP, *(point["steps"] for point in _firsts(leads[0]) if point["steps"] > BASE_STEP)]
    return [(step, _grown(leads, name, step)) for step in steps]


def _firsts(lead: ProcessCounts) -> list[Mapping[str, Any]]:
    """Return the records of the first steps, from the base step to step 12: a warm-up may raise the samples later."""
    place = bisect_left(lead.points, 12, key=itemgetter("steps"))
    return [point for point in lead.points[: place + 1] if point["steps"] >= BASE_STEP]


def _usual(totals: Sequence[tuple[int, float]]) -> float:
    """Return the growth per step that most steps have; the mean where no growth is that of most.

    An epoch's last batch may be smaller, and no batch may come with a step where one was fetched ahead.
    """
    growths: Counter[float] = Counter()
    for (before, earlier), (step, total) in pairwise(totals):
        growths[round((total - earlier) / (step - before), 6)] += step - before
    made = totals[-1][0] - totals[0][0]
    growth, steps = growths.most_common(1)[0]
    return growth if 2 * steps > made else (totals[-1][1] - totals[0][1]) / made


def _groups(trainers: Sequence[ProcessCounts]) -> list[list[ProcessCounts]]:
    """Return groups of ranks that train on the same samples; none where these are not known.

    Ranks of a process group tell their place among the data-parallel ones. Where one does not, or where the processes
    form no group, ranks with the same sums of inputs are taken together. Inputs that never change tell nothing.
    The first of a group has counted samples, if any of it has: later stages of a pipeline see no inputs.
    """
    keys: dict[str, Hashable] = {process.name: process.data_rank for process in trainers}
    form_no_group = trainers[0].world == 1 < len(trainers)
    if form_no_group or None in keys.values():
        steps = sorted(set.intersection(*(set(process.inputs) for process in trainers)))
        sums = {process.name: tuple(process.inputs[step] for step in steps) for process in trainers}
        if any(len(set(inputs)) < 2 for inputs in sums.values()):
            return []
        keys = {**sums}
    groups: dict[Hashable, list[ProcessCounts]] = {}
    for process in sorted(trainers, key=lambda process: not process.points[-1].get("rows")):
        groups.setdefault(keys[process.name], []).append(process)
    return list(groups.values())


def _witness(leads: Sequence[ProcessCounts]) -> Witness | str | None:
    """Return what counts the samples of some ranks, or why nothing does; None before it is clear."""
    step = min(process.steps for process in leads)
    module, loader, batches = (_grown(leads, name, step) for name in (MODULE.count, LOADER.count, "loader.batches"))
    is_fed = any(process.is_fed for process in leads) and loader > 0
    stepped = all(process.points[-1].get("environments") for process in leads)
    reuses = any(process.start.get("reuses") for process in leads)
    if not is_fed and reuses:
        why = "an optimizer of reinforcement learning uses its samples several times, and no environment is counted"
        return ENVIRONMENTS if stepped else why
    if loader and module and _agree(loader, module):
        return BOTH
    # which of two counts is that of the samples is decided at step 8
    if step < 8 and any(number(process.points[-1], LOADER.count) for process in leads):
        return None
    if not is_fed and loader > SOMETIMES * module:
        return "a loader feeds only some of the steps, and the module takes other samples"
    if not is_fed:
        return _contradiction(leads, MODULE) or MODULE if module else _unseen(leads)
    each = number(leads[0].points[-1], "loader.each")
    return _of_two(loader, module, batches, each)


def _of_two(loader: float, module: float, batches: float, each: float) -> Witness:
    """Return which of the loader's and the module's different counts is that of the samples.

    Args:
        loader: the samples of the loader's batches.
        module: the samples of the module's inputs.
        batches: the loader's batches.
        each: the samples of a batch by the loader's sampler; 0 without one.
    """
    if not module:
        return LOADER
    if each == 1 and _agree(batches, module):
        return Witness(name="loader and module", count="loader.batches", remark="a batch is one sample")
    times = module / loader
    if loader == batches and times > 1:
        return Witness(name="module", count="rows", remark=f"each of the loader's samples is a batch of {times:.4g}")
    return LOADER


def _in_words(witness: Witness, loader: float, module: float) -> str:
    """Return what a person reads of a witness, with the counts of both so far."""
    if witness != LOADER or not module or not loader:
        return f"{witness.name}{f'; {witness.remark}' if witness.remark else ''}"
    if _agree(loader, module):  # at first they differed by a batch that was fetched ahead
        return BOTH.name
    return f"{LOADER.name}; the module takes {module / loader:.4g} times as many inputs"


def _agree(count: float, second: float) -> bool:
    """Return whether two counts of samples differ by at most 3 %."""
    return abs(count - second) <= 0.03 * max(count, second)


def _contradiction(leads: Sequence[ProcessCounts], witness: Witness) -> str | None:
    """Return what speaks against a witness that counts; None while nothing does."""
    step = min(process.steps for process in leads)
    is_apart = any(process.points[-1].get("is_apart") for process in leads)
    if witness == MODULE:
        return _several_passes(leads, step, is_apart=is_apart)
    if witness != BOTH or is_apart:
        return None
    counts = [_grown(leads, counter.count, step) for counter in (LOADER, MODULE)]
    # loaders give the batches of some steps ahead
    ahead = 2.0 * counts[0] / max(step - BASE_STEP, 1)
    # counts that have agreed and later differ by more than a tenth are not believed
    agree = abs(counts[0] - counts[1]) <= max(0.1 * max(counts), ahead)
    return None if agree else "loader and module have agreed at first, and do so no more"


def _several_passes(leads: Sequence[ProcessCounts], step: int, *, is_apart: bool) -> str | None:
    """Return why the module may take other samples than a step needs; None where nothing speaks for it."""

    def share(name: str, of: str = "steps") -> float:
        part, total = (_grown(leads, count, step) for count in (name, of))
        return part / total if total else 0.0

    if is_apart and share("backwards") > 1 + SOMETIMES:
        return "several networks are trained in turn, and no loader of torch tells the samples"
    if share("joint", "backwards") >= USUALLY:
        return "the module runs several times for each loss, and no loader of torch tells the samples"
    if share("again", "forwards") >= SOMETIMES or SOMETIMES <= share("repeats") <= 1 - SOMETIMES:
        return "the module takes the same samples several times, and no loader of torch tells how often"
    if share("unlearnt") >= USUALLY:
        return "the module also runs without gradients between the steps, so its samples may be used several times"
    return None


def _unseen(leads: Sequence[ProcessCounts]) -> str:
    why = next((process.points[-1].get("why") for process in leads if process.points[-1].get("why")), None)
    off = next((process.off[0] for process in leads if process.off), None)
    return off or why or "the inputs of the trained module are not seen"


def _shares(lead: ProcessCounts, witness: Witness) -> Shares | None:
    base, last = _firsts(lead)[0], lead.points[-1]
    if last["at_s"] <= base["at_s"]:
        return None
    seconds = last["at_s"] - base["at_s"]

    def share(name: str) -> float:
        return min(1.0, max(0.0, (number(last, name) - number(base, name)) / seconds))

    return Shares(
        data=share("loader.wait_s") if lead.is_fed else 0.0,
        evaluation=0.0 if witness == ENVIRONMENTS else share("evaluates_s"),
        saves=share("saves_s"),
    )
