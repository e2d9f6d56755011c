"""What the processes of a training have told, merged over ranks: samples, marks, and the training's signature."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tuner.count import Merger
from tuner.count.process_counts import ProcessCounts

STEPS = range(1, 11)


def start(rank: int = 0, world: int = 1, data_rank: int | None = 0, **facts: Any) -> dict[str, Any]:
    """Return what a process tells at its first step."""
    known = {"optimizer": "AdamW", "learning_rate": 1e-3, "weight_decays": [0.01], "parameters": 1000, "shapes": "ab"}
    known |= {"types": ["float32"], "is_split": False, "device": "cpu", "uses_rl_library": False}
    return {"type": "start", "rank": rank, "world": world, "data_rank": data_rank, **known, **facts}


def count(step: int, **counts: Any) -> dict[str, Any]:
    """Return what a process tells after a step of 0.5 s with 8 samples."""
    told = {"rows": 8 * (step - 1), "forwards": step - 1, "form": "16 float32", "evaluates_s": 0.0}
    return {"type": "count", "at_s": 0.5 * step, "steps": step, "saves_s": 0.0, "precision": {}, **told, **counts}


def loader(step: int, each: int = 8, **counts: Any) -> dict[str, Any]:
    """Return the loader's counts after a step."""
    known = {"rows": each * step, "batches": step, "fed_steps": step, "passes": 0, "wait_s": step / 10, "pass_rows": 80}
    return {**known, **counts}


def merged(*ranks: tuple[Mapping[str, Any], Callable[[int], Mapping[str, Any]]]) -> Merger:
    """Return a merger that has heard the ranks in turn."""
    merger = Merger()
    for place, (begin, _) in enumerate(ranks):
        merger.feed(f"process {place}", {"type": "process", "argv": ["train.py"]})
        merger.feed(f"process {place}", begin)
    for step in STEPS:
        for place, (_, told) in enumerate(ranks):
            merger.feed(f"process {place}", told(step))
    return merger


def per_step(merger: Merger) -> float:
    """Return the samples from one mark to the next."""
    marks = list(merger.new_marks())
    assert marks[-1]["iteration"] == 10
    return (marks[-1]["samples"] - marks[0]["samples"]) / (marks[-1]["iteration"] - marks[0]["iteration"])


def test_the_inputs_of_the_module_count() -> None:
    merger = merged((start(), count))
    assert per_step(merger) == 8
    training = merger.training()
    assert training is not None
    assert (training.signature.samples_per_step, training.witness) == (8, "module")


def test_ranks_of_data_add_up_and_ranks_that_share_their_samples_are_one() -> None:
    ranks = [(start(rank, 4, rank // 2), count) for rank in range(4)]
    merger = merged(*ranks)
    assert per_step(merger) == 16
    training = merger.training()
    assert training is not None
    assert (training.ranks, training.data_ranks, training.signature.is_split) == (4, 2, True)


def test_without_groups_the_sums_of_inputs_tell_which_ranks_share_samples() -> None:
    def with_inputs(factor: float) -> Callable[[int], Mapping[str, Any]]:
        return lambda step: count(step, inputs={str(step): factor * step})

    same = [(start(rank, 2, None), with_inputs(1.0)) for rank in range(2)]
    assert per_step(merged(*same)) == 8
    own = [(start(rank, 2, None), with_inputs(1.0 + rank)) for rank in range(2)]
    assert per_step(merged(*own)) == 16


def test_where_nothing_tells_which_ranks_share_samples_none_are_counted() -> None:
    mock = [(start(rank, 2, None), lambda step: count(step, inputs={str(step): 1.0})) for rank in range(2)]
    merger = merged(*mock)
    assert list(merger.new_marks()) == []
    assert "which ranks" in str(merger.why_uncounted)


def test_a_network_that_is_called_twice_in_a_step_is_counted_by_its_loader() -> None:
    twice = (start(), lambda step: count(step, rows=16 * (step - 1), loader=loader(step)))
    merger = merged(twice)
    assert per_step(merger) == 8
    training = merger.training()
    assert training is not None
    assert training.witness.startswith("loader; ")
    assert "2 times" in training.witness


def test_samples_are_unknown_where_steps_train_without_a_call_of_the_module() -> None:
    merger = merged((start(), lambda step: count(3 * step, forwards=2 * step)))
    list(merger.new_marks())
    assert merger.training() is None
    assert "without a call of the module" in str(merger.why_uncounted)


def test_a_loader_whose_samples_are_batches_does_not_count() -> None:
    whole = (start(), lambda step: count(step, loader=loader(step, each=1)))
    assert per_step(merged(whole)) == 8


@pytest.mark.parametrize(
    ("batches", "per_step", "elements"),
    [
        ([8, 9, 8, 9, 8, 9, 8], 8.4, 100.0),  # sentences up to so many words
        ([8, 8, 5, 8, 8, 5, 8], 8, None),  # short passes with a smaller last batch
        ([1, 1, 1, 1, 1, 1, 1], 1, 100.0),  # all sentences joined into one
    ],
)
def test_a_step_s_size_is_that_of_its_inputs_where_its_samples_vary(
    batches: list[int], per_step: float, elements: float | None
) -> None:
    def told(step: int) -> Mapping[str, Any]:
        rows = sum(batches[: max(step - 3, 0)])
        return count(step, rows=rows, elements=100 * step, form="? int64", forwards=step)

    merger = merged((start(), told))
    list(merger.new_marks())
    training = merger.training()
    assert training is not None
    assert training.signature.samples_per_step == pytest.approx(per_step, abs=0.1)
    assert training.signature.elements_per_step == elements


@pytest.mark.parametrize("batch", [3, 8])
def test_the_samples_of_most_steps_are_told_where_an_epoch_s_last_batch_is_smaller_or_fetched_ahead(batch: int) -> None:
    def told(step: int) -> Mapping[str, Any]:
        return count(step, rows=8 * (step - 1), loader=loader(step, rows=8 * step - batch * (step >= 9)))

    merger = merged((start(), told))
    list(merger.new_marks())
    training = merger.training()
    assert training is not None
    assert training.signature.samples_per_step == 8


def test_samples_per_step_that_grow_later_are_those_of_the_first_steps() -> None:
    merger = Merger()
    merger.feed("process", start())
    for step in range(1, 60):
        merger.feed("process", count(step, rows=8 * step + 24 * max(0, step - 17)))
    list(merger.new_marks())
    training = merger.training()
    assert training is not None
    assert training.signature.samples_per_step == 8


def test_where_steps_have_different_samples_their_mean_is_told() -> None:
    merger = merged((start(), lambda step: count(step, rows=step * step)))
    list(merger.new_marks())
    training = merger.training()
    assert training is not None
    assert training.signature.samples_per_step == (100 - 9) / 7
    assert training.signature.samples_error == pytest.approx(1.633, abs=0.001)  # growths of 7, 9, … 19
    assert training.signature.samples_in_words == "about 13"


def test_steps_of_environments_count_where_an_optimizer_uses_samples_again() -> None:
    def told(step: int) -> Mapping[str, Any]:
        return count(step, environments={"steps": 128 * step, "rollouts": step})

    assert per_step(merged((start(uses_rl_library=True), told))) == 128
    merger = merged((start(uses_rl_library=True), count))
    assert list(merger.new_marks()) == []
    assert "several times" in str(merger.why_uncounted)


def test_steps_of_environments_without_gradients_are_no_evaluation() -> None:
    def told(step: int) -> Mapping[str, Any]:
        return count(step, environments={"steps": 128 * step, "rollouts": step}, evaluates_s=0.3 * step)

    merger = merged((start(uses_rl_library=True), told))
    assert [mark for mark in merger.new_marks() if "pause" in mark] == []
    training = merger.training()
    assert training is not None
    assert training.shares is not None
    assert training.shares.evaluation == 0


def test_the_operations_of_a_step_are_those_of_all_ranks_for_each_sample() -> None:
    ranks = [
        (start(rank, 4, rank // 2), lambda step: count(step, flops=800 if step > 5 else None)) for rank in range(4)
    ]
    merger = merged(*ranks)
    list(merger.new_marks())
    training = merger.training()
    assert training is not None
    assert training.flops_per_sample == 4 * 800 / 16


def test_a_loader_feeds_a_training_by_the_steps_after_its_first_two() -> None:
    def is_fed(share: float) -> bool:
        process = ProcessCounts("one")
        process.feed(start())
        for step in (1, 2, 20):
            process.feed(count(step, loader=loader(step, fed_steps=min(step, 2 + round(share * 18)))))
        return process.is_fed

    assert (is_fed(0.85), is_fed(0.95)) == (False, True)


def test_accumulated_batches_and_waiting_for_data_are_told() -> None:
    def told(step: int) -> Mapping[str, Any]:
        return count(step, rows=32 * (step - 1), loader=loader(step, each=32, batches=4 * step, fed_steps=step))

    training = merged((start(), told)).training()
    assert training is None
    merger = merged((start(), told))
    list(merger.new_marks())
    training = merger.training()
    assert training is not None
    assert training.micro_batches == 4
    assert training.shares is not None
    assert training.shares.data == pytest.approx(0.2)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_losses_end_where_they_are_no_longer_finite(value: float) -> None:
    losses = {"0": 2.0, "1": 1.0, "2": value, "3": 1.0}
    merger = merged((start(), lambda step: count(step, rows=32 * step, losses=losses)))
    list(merger.new_marks())
    training = merger.training()
    assert training is not None
    assert (training.signature.losses, training.signature.diverges) == ((2.0, 1.0), True)


def test_batches_between_the_steps_of_a_network_that_alternates_with_another_are_no_accumulation() -> None:
    merger = merged(
        (
            start(),
            lambda step: count(
                step, rows=64 * step, is_apart=True, loader=loader(step, each=32, batches=2 * step, fed_steps=step)
            ),
        )
    )
    list(merger.new_marks())
    training = merger.training()
    assert training is not None
    assert training.micro_batches is None


def test_batches_of_a_step_that_grow_in_a_warm_up_are_those_of_the_first_steps() -> None:
    merger = Merger()
    merger.feed("process", start())
    for step in range(1, 60):
        more = 3 * max(0, step - 17)
        batches = loader(step, rows=8 * (step + more), batches=step + more, fed_steps=step)
        merger.feed("process", count(step, rows=8 * (step + more), loader=batches))
    list(merger.new_marks())
    training = merger.training()
    assert training is not None
    assert (training.micro_batches, training.signature.samples_per_step) == (1, 8)


def test_a_mark_tells_of_the_pause_before_it() -> None:
    def told(step: int) -> Mapping[str, Any]:
        return count(step, loader=loader(step, passes=int(step > 6)), evaluates_s=3.0 * (step > 8))

    merger = merged((start(), told))
    pauses = {mark["iteration"]: mark["pause"] for mark in merger.new_marks() if "pause" in mark}
    assert pauses == {7: {"what": "an epoch's end", "every": 10.0}, 9: {"what": "an evaluation"}}


def test_a_rank_that_has_not_come_as_far_holds_the_marks_back() -> None:
    merger = merged((start(0, 2, 0), count), (start(1, 2, 1), lambda step: count(min(step, 7))))
    assert max(mark["iteration"] for mark in merger.new_marks()) == 7


@pytest.mark.parametrize(("kind", "samples"), [("each", 4), ("all", 8), (None, None)])
def test_a_batch_norm_takes_its_means_over_the_samples_of_a_forward_pass(
    kind: str | None, samples: float | None
) -> None:
    def of_two(step: int) -> dict[str, Any]:
        return count(step, forwards=2 * (step - 1))

    merger = merged(*[(start(rank, 2, rank, batch_norm=kind), of_two) for rank in range(2)])
    list(merger.new_marks())
    training = merger.training()
    assert training is not None
    assert training.signature.normed == samples


def test_tokens_skipped_steps_and_allocators_are_told() -> None:
    def of_rank(retries: int) -> Callable[[int], dict[str, Any]]:
        told = {"skipped": 2, "reserved_mib": 100.0 * retries, "alloc_retries": retries}
        return lambda step: count(step, form="1024 int64", **told)

    merger = merged(*[(start(rank, 2, rank, compiled=True), of_rank(rank + 1)) for rank in range(2)])
    list(merger.new_marks())
    training = merger.training()
    assert training is not None
    assert (training.tokens_per_sample, training.skipped, training.compiled) == (1024, 2, True)
    assert (training.reserved_mib, training.alloc_retries) == (200.0, 3)


@pytest.mark.parametrize(("parameters", "trainers"), [(1000, ["trainer", "rank"]), (1001, ["helper"])])
def test_a_process_that_a_training_process_starts_later_helps_it_unless_its_model_is_larger(
    parameters: int, trainers: list[str]
) -> None:
    merger = Merger()
    for process, pid, began_s in (("trainer", 10, 0.1), ("helper", 11, 2.3), ("rank", 12, 0.4)):
        parents = [1, 10] if pid != 10 else [1]
        merger.feed(
            process, {"type": "process", "argv": ["train.py"], "pid": pid, "parents": parents, "began_s": began_s}
        )
        merger.feed(process, start(parameters=parameters if process == "helper" else 1000))
        for step in STEPS:
            merger.feed(process, count(step))
    assert [process.name for process in merger.trainers] == trainers


@pytest.mark.parametrize("world_of_starter", [1, 2])
def test_ranks_that_a_training_process_starts_later_count(world_of_starter: int) -> None:
    merger = Merger()
    trainers = {10: (0, world_of_starter), 11: (1, 2), **({12: (0, 2)} if world_of_starter == 1 else {})}
    for pid in trainers:
        began_s = 0.1 if pid == 10 else 2.3
        merger.feed(f"{pid}", {"type": "process", "argv": [], "pid": pid, "parents": [10], "began_s": began_s})
    merger.feed("10", start())
    merger.feed("10", count(1))
    for pid, (rank, world) in trainers.items():
        merger.feed(f"{pid}", start(rank, world, rank))
        for step in STEPS:
            merger.feed(f"{pid}", count(step))
    assert [(process.rank, process.world) for process in merger.trainers] == [(0, 2), (1, 2)]
    assert per_step(merger) == 16


@pytest.mark.parametrize(("step", "optimizer"), [(5, "SGD"), (40, "AdamW")])
def test_an_optimizer_that_comes_long_after_the_first_steps_is_no_other_training(step: int, optimizer: str) -> None:
    merger = Merger()
    merger.feed("process", start())
    for each in range(1, 60):
        if each == step:
            merger.feed("process", start(optimizer="SGD"))
        merger.feed("process", count(each))
    list(merger.new_marks())
    training = merger.training()
    assert training is not None
    assert training.signature.optimizer == optimizer


def test_the_first_steps_are_over_at_the_twelfth() -> None:
    for steps, is_early in ((11, True), (12, False)):
        merger = Merger()
        merger.feed("process", start())
        for step in range(1, steps + 1):
            merger.feed("process", count(step))
        list(merger.new_marks())
        training = merger.training()
        assert training is not None
        assert training.is_early is is_early
