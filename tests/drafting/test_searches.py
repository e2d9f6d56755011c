import shlex
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.count import Flag, Signature, TrainingCounts
from tuner.count.signature import Shares
from tuner.drafting.asking import check_search_options, flags_to_search, search_lines
from tuner.drafting.draft import growth_limit
from tuner.drafting.searches import Known, SearchedFlag, balanced_sizes, proposed
from tuner.errors import StudyError
from tuner.study import ParameterSpec, value_text

COMMAND = shlex.split("train.py --num_envs 64 --batch-size=32 --num-workers 0 --lr 0.1 --opt adam --headless")


def found(command: str, *asked: str, flags: tuple[Flag, ...] = (), free: bool = False) -> dict[str, SearchedFlag]:
    known = Known(words=command.split(), cores=4, flags=flags, free_batch=free)
    return {one.parameter: one for one in flags_to_search(known, asked)}


def test_a_search_is_read() -> None:
    for asked, parameter, values, typed in [
        ("num_envs=16..100", "num_envs", (16, 32, 64, 100), 64),
        ("batch_size=20..80", "batch_size", (20, 32, 40, 80), 32),
        ("--num-workers=0,2,4", "num_workers", (0, 2, 4), 0),
        ("batch_size", "batch_size", (16, 32, 64, 128, 256), 32),
        ("lr=0.1,0.01", "lr", (0.1, 0.01), 0.1),
        ("opt=adam,sgd", "opt", ("adam", "sgd"), "adam"),
        ("prefetch-factor=2,4", "prefetch_factor", (2, 4), None),
        ("amp=true,false", "amp", (False, True), False),
        ("headless=on,off", "headless", (False, True), True),
        ("tag=1.2.3,16-mixed,8g,7x,.5", "tag", ("1.2.3", "16-mixed", "8g", "7x", 0.5), None),
    ]:
        (one,) = flags_to_search(Known(words=COMMAND, cores=4), [asked])
        assert (one.parameter, one.values, one.current) == (parameter, values, typed)


def test_a_typed_number_that_no_study_can_hold_stays_a_text() -> None:
    chosen = found("train.py --seed 12345678901234567890 --clip inf", "seed=1", "clip=1.0")
    assert chosen["seed"].ordered == ("12345678901234567890", 1)
    assert chosen["clip"].ordered == ("inf", 1.0)


def test_what_changes_learning_keeps_its_value_until_it_is_freed() -> None:
    command = " ".join(COMMAND)
    assert {name: one.values for name, one in found(command).items()} == {
        "num_envs": (64,),
        "batch_size": (32,),
        "num_workers": (0, 2, 4),
    }
    freed = found(command, free=True)
    assert freed["num_envs"].values == (16, 32, 64, 128, 256, 512, 1024)
    assert freed["batch_size"].values == (16, 32, 64, 128, 256)
    assert [name for name, one in freed.items() if one.changes_learning] == ["num_envs", "batch_size"]


@given(st.integers(1, 512), st.integers(1, 256))
def test_batches_that_accumulate_keep_the_total(batch: int, steps: int) -> None:
    sizes = balanced_sizes(batch, steps)
    assert sizes[0] == batch
    assert all(batch * steps % size == 0 for size in sizes)
    assert max(sizes) == batch * steps


def test_batch_and_accumulation_vary_only_together() -> None:
    command = "train.py --batch-size 8 --grad-accum-steps 4"
    one, other = found(command).values()
    assert (one.values, one.changes_learning) == ((8, 16, 32), False)
    assert (other.parameter, other.computed, other.varies) == ("grad_accum_steps", "32 / {batch_size}", False)
    alone = Flag(names=("grad-accum-steps",), value="4")
    assert found("train.py --batch-size 8", flags=(alone,))["grad_accum_steps"].computed == "32 / {batch_size}"
    assert list(found("train.py --batch-size 8 --accum 1")) == ["batch_size"]
    assert found(command, "batch-size=8,64")["batch_size"].changes_learning
    assert "grad_accum_steps" not in found(command, free=True)
    lines = list(search_lines(list(found(command).values()), free=False, growth_limit=growth_limit))
    assert any("the total batch stays" in line for line in lines)


FLAGS = (
    Flag(names=("batch-size", "b"), value="32"),
    Flag(names=("workers", "j"), value="2"),
    Flag(names=("prefetch-factor",)),
    Flag(names=("amp",), is_switch=True),
    Flag(names=("dtype",), choices=("float32", "bfloat16"), value="float32"),
    Flag(names=("channels-last",), is_switch=True),
    Flag(names=("compile",), value="False"),
    Flag(names=("pin-mem",), is_switch=True),
    Flag(names=("no-pin-mem",), is_switch=True),
    Flag(names=("num-env-runners",), value="1"),
    Flag(names=("eval-batch-size",), value="8"),
)


def test_named_sizes_keep_the_total_where_all_of_them_divide_it() -> None:
    command = "train.py --batch_size 8 --gradient_accumulation_steps 4"
    kept = found(command, "batch_size=8,16,32")
    assert kept["gradient_accumulation_steps"].computed == "32 / {batch_size}"
    assert not kept["batch_size"].changes_learning
    for freed in (found(command, "batch_size=8,64"), found(command, "batch_size=8,16", free=True)):
        assert freed.keys() == {"batch_size"}
        assert freed["batch_size"].changes_learning


def test_a_switch_that_takes_a_value_is_spelt_as_the_script_spells_its_own() -> None:
    takes = (Flag(names=("compile",), value="False"),)
    assert found("train.py --batch_size=8", "compile=false,true", flags=takes)["compile"].values == ("False", "True")
    alone = (Flag(names=("compile",), is_switch=True),)
    assert found("train.py --batch_size=8", "compile=false,true", flags=alone)["compile"].is_switch


def test_the_flags_of_a_script_are_proposed_by_their_spelling() -> None:
    assert {name: one.ordered for name, one in found("train.py -b 16 --amp", flags=FLAGS).items()} == {
        "batch_size": (16,),
        "workers": (2, 0, 4),
        "prefetch_factor": (2, 4, 8),
        "channels-last": (False, True),
    }
    known = Known(words=["train.py", "-b", "16"], cores=4, flags=FLAGS, on_gpu=True)
    switches = {one.parameter: (one.flag, one.ordered, one.is_switch) for one in flags_to_search(known)[3:]}
    assert switches == {
        "channels-last": ("channels-last", (False, True), True),
        "compile": ("compile", ("False", "True"), False),
        "pin-mem": ("pin-mem", (False, True), True),
    }


def test_computing_again_that_is_on_may_be_turned_off() -> None:
    for name in ("grad-checkpointing", "gradient_checkpointing", "recompute-activations"):
        flag = Flag(names=(name,), value="True", is_switch=True, off=(f"no-{name}",))
        assert [*found("train.py", flags=(flag,))] == [f"no-{name}"]


def test_environments_that_nobody_typed_are_a_size() -> None:
    flags = (Flag(names=("num-envs",), value="4"), Flag(names=("batch-size",), value="0"))
    (size,) = found("ppo.py --total-timesteps 100", flags=flags, free=True).values()
    assert (size.flag, size.current, size.changes_learning) == ("num-envs", 4, True)


def test_a_precision_has_its_own_value_and_one_other() -> None:
    for command, flag, ordered in [
        ("train.py --bf16 True", Flag(names=("bf16",), is_switch=True), ("True", "False")),
        ("train.py --bf16", Flag(names=("bf16",), is_switch=True), (True, False)),
        ("train.py", Flag(names=("mixed_precision",), choices=("no", "bf16"), value="no"), ("no", "bf16")),
        ("train.py --dtype=float32", Flag(names=("dtype",)), ("float32", "bfloat16")),
        ("train.py --dtype=int8", Flag(names=("dtype",)), None),
        ("train.py --precision bf16", Flag(names=("precision",), choices=("fp32", "bf16")), None),
    ]:
        known = Known(words=command.split(), cores=4, flags=(flag,))
        assert [one.ordered for one in proposed(known)] == ([] if ordered is None else [ordered])


def test_a_precision_varies_only_where_a_person_names_it() -> None:
    asked = found("train.py", "amp=true,false", "dtype", "b=8,16", flags=FLAGS)
    assert {name: (one.ordered, one.changes_learning) for name, one in asked.items()} == {
        "amp": ((False, True), False),
        "dtype": (("float32", "bfloat16"), False),
        "batch_size": ((32, 8, 16), True),
    }


def test_the_value_of_the_command_is_always_among_the_values_and_the_first() -> None:
    assert found("train.py --batch_size 64", "batch_size=32,64,128")["batch_size"].ordered == (64, 32, 128)
    assert found("train.py --batch_size 48", "batch_size=32,64")["batch_size"].ordered == (48, 32, 64)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["=3"], "write FLAG=8,16,32"),
        (["num_envs=,"], "write FLAG=8,16,32"),
        (["lr=0.1..0.5"], "whole numbers"),
        (["num_envs=64..8"], "smaller bound first"),
        (["opt"], "has no number"),
        (["momentum"], "has no number"),
        (["num_envs=8", "num-envs=16"], "more than once"),
        (["num-workers=0,nan"], "whole numbers of at least 0"),
        (["batch-size=0"], "whole numbers of at least 1"),
        (["lr=inf"], "write numbers"),
        (["opt=adam,\x1b[31m"], "control characters"),
    ],
)
def test_a_search_of_another_form_is_refused(asked: list[str], words: str) -> None:
    def read() -> None:
        check_search_options(asked, Known(words=COMMAND, cores=4))
        flags_to_search(Known(words=COMMAND, cores=4), asked)

    with pytest.raises(StudyError, match=words):
        read()


@given(st.sampled_from(["num_envs", "lr", "opt", "seed"]), st.text(min_size=1))
def test_values_that_a_study_cannot_hold_are_refused_before_a_run(flag: str, text: str) -> None:
    with suppress(StudyError):
        check_search_options([f"{flag}={text}"], Known(words=COMMAND, cores=4))
        for search in flags_to_search(Known(words=COMMAND, cores=4), [f"{flag}={text}"]):
            assert ParameterSpec.model_validate({"choices": search.values})
            assert all(value_text(value).isprintable() for value in search.values)


def test_a_command_without_usual_flags_needs_a_search() -> None:
    with pytest.raises(StudyError, match=r"name at least one, such as --search seed=3,6 .*: seed=3\)$"):
        found("train.py --seed 3")
    with pytest.raises(StudyError, match=r"search FLAG=VALUE,VALUE .*no number"):
        found("train.py --config a.yaml")


def test_short_flags_of_batch_and_workers_are_usual() -> None:
    assert {name: one.flag for name, one in found("train.py -b 32 -j 0").items()} == {"b": "b", "j": "j"}


def test_another_batch_is_usual_where_the_command_has_no_usual_flag() -> None:
    command = "train.py --frames-per-batch 256 --num_batches 3 --eval_batch 8"
    assert list(found(command)) == ["frames_per_batch"]
    assert list(found(f"{command} --b 4")) == ["b"]


def test_a_typed_placeholder_has_no_value_of_its_own() -> None:
    (one,) = found("train.py --batch-size={batch_size}", "batch_size=32,64").values()
    assert (one.current, one.first) == (None, 32)


def test_a_variable_of_workers_is_the_example() -> None:
    known = Known(words=["train.py"], env={"BATCH": "8", "WORKERS": "0"}, cores=4)
    with pytest.raises(StudyError, match="such as --search WORKERS=0,2,4,8"):
        flags_to_search(known, ())


def test_where_no_flag_can_vary_the_time_that_data_cost_is_told() -> None:
    training = replace(counted(), shares=Shares(data=0.96, evaluation=0.0, saves=0.0), passes=0)
    with pytest.raises(StudyError, match=r"waits for data 96\.0 % .*variable .* as in NUM_WORKERS=0,2"):
        flags_to_search(Known(words=["train.py"], cores=4, training=training), ())


@pytest.mark.parametrize(("name", "way"), [("batch", r"type \{batch\}"), ("BATCH", "environment, write BATCH=VALUE")])
def test_what_is_no_flag_of_the_script_may_be_a_word_or_a_variable(name: str, way: str) -> None:
    known = Known(words=["train.py", "8"], cores=4, flags=(Flag(names=("workers",), value="0"),), knows_all=True)
    with pytest.raises(StudyError, match=way):
        flags_to_search(known, [f"{name}=8,16"])


@pytest.mark.parametrize(("passes", "why"), [(0, "waits for data 1.0 %"), (None, "no loader")])
def test_workers_that_would_gain_nothing_are_said_to_be_left_out(passes: int | None, why: str) -> None:
    shares = Shares(data=0.01, evaluation=0.0, saves=0.0)
    training = replace(counted(), shares=shares, passes=passes)
    known = Known(words=shlex.split("train.py --batch-size 8 --num-workers 0"), cores=4, training=training)
    told: list[str] = []
    assert [flag.parameter for flag in flags_to_search(known, (), say=told.append)] == ["batch_size"]
    assert why in told[0]
    assert "num-workers is not searched" in told[0]
    told.clear()
    flags_to_search(known, (), say=told.append, ask=lambda _: "num-workers=0,2")
    assert not any("not searched" in line for line in told)
    disturbed = [flag.parameter for flag in flags_to_search(replace(known, is_disturbed=True), ())]
    assert ("num_workers" in disturbed) is (passes is not None)


def counted(*, ranks: int = 1, micro_batches: float = 1.0, normed: float | None = None) -> TrainingCounts:
    """Return the counts of a training of 32 samples a step."""
    signature = Signature(
        samples_per_step=32,
        sample="3x8x8 float32",
        parameters=10,
        shapes="ab",
        is_split=False,
        optimizer="SGD",
        learning_rate=0.1,
        weight_decays=(),
        precision="float32",
        normed=normed,
    )
    return TrainingCounts(signature=signature, witness="loader", ranks=ranks, micro_batches=micro_batches)


def test_parts_of_a_batch_keep_their_size_where_a_batch_norm_takes_means_over_them() -> None:
    training = counted(micro_batches=4.0, normed=8.0)
    known = Known(words=shlex.split("train.py --batch-size 8 --grad-accum-steps 4"), cores=4, training=training)
    assert [flag.parameter for flag in flags_to_search(known, ()) if flag.varies] == []


def test_a_batch_in_camel_case_is_a_batch() -> None:
    freed = found("main.py --batchSize 64 --imageSize 32", free=True)
    assert freed["batchSize"].values == (32, 64, 128, 256, 512)
    assert freed["batchSize"].changes_learning


def test_a_size_of_zero_is_none() -> None:
    sizes = (Flag(names=("batch-size",), value="0"), Flag(names=("num-envs",), value="8"))
    assert found("ppo.py --num-envs 8 --batch-size 0", flags=sizes).keys() == {"num_envs"}
    with pytest.raises(StudyError, match="name at least one"):
        found("ppo.py", flags=sizes[:1])


def test_workers_of_unknown_number_are_the_example_and_a_list_is_none() -> None:
    flags = (Flag(names=("num-workers",)), Flag(names=("hidden",), typed=True))
    with pytest.raises(StudyError, match=r"such as --search num-workers=0,2,4,8 \(.*list it first"):
        found("train.py --hidden 64 64", flags=flags)
    with pytest.raises(StudyError, match="FLAG=VALUE,VALUE"):
        found("train.py --hidden 64 64", flags=flags[1:])


def test_the_first_value_stands_for_an_unknown_one_of_the_script() -> None:
    (unknown, typed) = found(
        "train.py --bs 8", "num_workers=0,4", "bs=8,16", flags=(Flag(names=("num_workers",)),)
    ).values()
    told = search_lines([unknown, typed], free=False, growth_limit=lambda _: None)
    assert ["the first counts as yours" in line for line in told] == [True, False]


def test_only_a_size_of_one_value_is_said_to_be_kept() -> None:
    chosen = found("train.py --bs 8 --workers 2", "bs=8", "workers=2").values()
    told = search_lines(list(chosen), free=False, growth_limit=lambda _: None)
    assert ["(kept" in line for line in told] == [True, False]


def test_a_flag_of_several_values_needs_a_placeholder() -> None:
    flags = (Flag(names=("hidden",), typed=True), Flag(names=("lr",), typed=True, value="1"))
    with pytest.raises(StudyError, match=r"values 64 -1; type a placeholder .* --hidden \{hidden\} -1"):
        found("train.py --hidden 64 -1 --lr 1 run", "hidden=64,128", flags=flags)
    assert found("train.py --hidden 64 -1 --lr 1 run", "lr=1,2", flags=flags).keys() == {"lr"}
    assert found("train.py --hidden {hidden} 64", "hidden=64,128", flags=flags)["hidden"].values == (64, 128)


def test_a_value_in_a_file_is_not_the_flag_of_its_name() -> None:
    flags = (Flag(names=("workers",), value="0"), Flag(names=("c.yaml:workers",), value="4"))
    assert found("train.py --config c.yaml", "c.yaml:workers=0,4", flags=flags)["workers"].file == "c.yaml"
