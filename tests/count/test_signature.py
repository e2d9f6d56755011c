"""Which parts of a training a config changes."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tuner.count import Signature, differences

OWN = Signature(
    samples_per_step=64,
    sample="1024 int64",
    parameters=1000,
    shapes="ab",
    is_split=False,
    optimizer="AdamW",
    learning_rate=1e-4,
    weight_decays=(0.1,),
    precision="float32",
    normed=16.0,
    losses=(10.8, 10.7, 10.6, 10.5),
)


def test_each_part_of_a_training_is_told() -> None:
    for changed, part in [
        ({"samples_per_step": 128}, "batch"),
        ({"normed": 32.0}, "batch"),
        ({"sample": "512 int64"}, "sample"),
        ({"parameters": 1001}, "model"),
        ({"shapes": "ba"}, "model"),
        ({"optimizer": "SGD"}, "optimizer"),
        ({"learning_rate": 3e-4}, "optimizer"),
        ({"weight_decays": ()}, "optimizer"),
        ({"precision": "float32, autocast bfloat16"}, "precision"),
        ({"losses": (5.4, 5.3, 5.3, 5.2)}, "loss"),
    ]:
        other = replace(OWN, **changed)  # pyright: ignore[reportArgumentType]
        assert [difference.part for difference in differences(OWN, other)] == [part]
        assert differences(OWN, other, free=[part]) == ()


def test_a_script_may_scale_its_learning_rate_with_a_batch_that_is_free() -> None:
    scaled = replace(OWN, samples_per_step=128, learning_rate=2e-4, weight_decays=(0.2,))
    assert differences(OWN, scaled, free=["batch"]) == ()
    for other in (replace(scaled, optimizer="SGD"), replace(scaled, samples_per_step=64)):
        assert [difference.part for difference in differences(OWN, other, free=["batch"])] == ["optimizer"]


def test_a_last_batch_another_seed_and_a_split_model_are_the_same_training() -> None:
    assert not differences(OWN, replace(OWN, samples_per_step=63.5, losses=(10.9, 10.6, 10.7, 10.4)))
    assert not differences(OWN, replace(OWN, parameters=1010, shapes="xy", is_split=True))


def test_batches_that_vary_are_another_batch_only_beyond_their_errors() -> None:
    varying = replace(OWN, samples_per_step=16.4, samples_error=3.0, normed=16.4)
    assert not differences(varying, replace(varying, samples_per_step=24.7, samples_error=5.0, normed=24.7))
    other = replace(varying, samples_per_step=48.0, samples_error=5.0)
    assert [difference.part for difference in differences(varying, other)] == ["batch"]


def test_a_length_that_differs_from_batch_to_batch_is_no_other_sample() -> None:
    assert not differences(OWN, replace(OWN, sample="? int64"))
    assert [found.part for found in differences(OWN, replace(OWN, sample="? float32"))] == ["sample"]


def test_batches_by_tokens_are_another_batch_by_their_tokens() -> None:
    varying = replace(OWN, samples_per_step=60, samples_error=30.0, elements_per_step=1900.0, elements_error=40.0)
    doubled = replace(varying, samples_per_step=150, samples_error=50.0, elements_per_step=3900.0)
    (difference,) = differences(varying, doubled)
    assert (difference.part, difference.baseline, difference.changed) == ("batch", "1900", "3900")
    assert not differences(varying, replace(varying, elements_per_step=2000.0))
    assert not differences(varying, replace(OWN, samples_per_step=60))  # its samples tell its size


def test_losses_of_other_classes_are_not_compared() -> None:
    other = replace(OWN, losses=(5.4, 5.3, 5.3, 5.2))
    of_files = replace(OWN, labels=(0, 0, 0, 0))
    assert not differences(of_files, replace(other, labels=(0, 1, 0, 1)))
    for labels in [(0, 0, 0, 0), (None,) * 4, (0, None, 0, None)]:  # in the last, one class is frequent
        assert differences(of_files, replace(other, labels=labels))


def test_another_seed_may_begin_with_another_loss() -> None:
    seeded = replace(OWN, seed=0, losses=(0.06, 0.05, 0.04), added_losses=1.0)
    other = replace(seeded, seed=1, losses=(0.11, 0.1, 0.09))
    assert not differences(seeded, other)
    assert not differences(seeded, replace(other, losses=(-0.06, -0.05, -0.04)))
    twice = replace(other, added_losses=2.0)  # as where a script accumulates gradients without dividing the losses
    for changed in (replace(other, seed=0), replace(other, losses=(6.1, 6.0, 5.9)), twice):
        assert [difference.part for difference in differences(seeded, changed)] == ["loss"]


def test_workers_that_repeat_the_samples_make_another_training() -> None:
    (difference,) = differences(replace(OWN, copies=1), replace(OWN, copies=2))
    assert (difference.part, difference.baseline, difference.changed) == ("sample", "1", "2")
    assert not differences(replace(OWN, copies=2), OWN)  # its first steps do not tell yet


def test_a_config_that_diverges_is_another_training_whatever_else_may_vary() -> None:
    diverging = replace(OWN, precision="float16", losses=(10.8,), diverges=True)
    (difference,) = differences(OWN, diverging, free={"precision"})
    assert difference.part == "loss"
    assert not differences(diverging, diverging)


def test_losses_are_compared_only_where_all_else_is_equal() -> None:
    other = replace(OWN, samples_per_step=128, losses=(1.0, 1.0, 1.0))
    assert [difference.part for difference in differences(OWN, other)] == ["batch"]


@given(st.integers(1, 10**6), st.floats(1e-6, 1.0), st.lists(st.floats(0.1, 20), max_size=8))
def test_a_training_is_like_itself(samples: int, rate: float, losses: list[float]) -> None:
    training = replace(OWN, samples_per_step=samples, learning_rate=rate, losses=tuple(losses))
    assert differences(training, training) == ()
