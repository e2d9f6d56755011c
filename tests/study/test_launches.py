"""Ready-made spaces: what `launch` makes of a command."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from tuner.errors import StudyError
from tuner.study import LaunchName, StudySpec, launch_with_flags, launches, load

MEGATRON = (
    "torchrun --nproc_per_node {ranks} pretrain_gpt.py --num-layers 16 --num-attention-heads 12 --micro-batch-size 1 "
    "--global-batch-size 64 --tensor-model-parallel-size 2 --sequence-parallel --bf16"
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def launched(launch: object, command: str, **more: Any) -> StudySpec:
    options = {"command": command, **more.pop("options", {})}
    Path("s.yaml").write_text(json.dumps({"launch": launch, "trainer": {"name": "command", "options": options}} | more))
    return load("s.yaml")


def choices(spec: StudySpec) -> dict[str, object]:
    return {name: parameter.choices for name, parameter in spec.space.items()}


def test_megatron_s_degrees_begin_with_the_typed_ones_and_keep_the_total_batch() -> None:
    spec = launched("megatron", MEGATRON)
    searched = choices(spec)
    assert searched["tensor_model_parallel_size"] == (2, 1, 4, 8)
    assert searched["pipeline_model_parallel_size"] == (1, 2, 4, 8)
    assert searched["sequence-parallel"] == (True, False)
    words = spec.trainer.command
    assert words[words.index("--tensor-model-parallel-size") + 1] == "{tensor_model_parallel_size}"
    assert "{flag:sequence-parallel}" in words
    assert "--sequence-parallel" not in words
    assert spec.trainer.options["unset"]["pipeline_model_parallel_size"] == 1  # left out at the script's own value
    own = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 1, "micro_batch_size": 16, "ranks": 4}
    refused = {
        "tensor_model_parallel_size": 8,  # 12 heads
        "pipeline_model_parallel_size": 4,  # 2 * 4 > 4 cards
        "micro_batch_size": 64,  # 2 ranks of 64 are more than 64
    }
    rules = spec.build_rules()
    assert all(rule.holds(own) for rule in rules)
    assert not any(all(rule.holds({**own, name: value}) for rule in rules) for name, value in refused.items())
    assert spec.objective == "samples_per_s"


def test_what_the_study_says_itself_stays() -> None:
    own = {"space": {"micro_batch_size": {"choices": [3]}}, "rules": ["{micro_batch_size} > 2"], "objective": "sm"}
    spec = launched("megatron", MEGATRON, options={"keeps": []}, **own)
    assert choices(spec)["micro_batch_size"] == (3,)
    assert (spec.rules[-1], spec.objective, spec.trainer.options["keeps"]) == (
        "{micro_batch_size} > 2",
        "min_avg_sm",
        [],
    )


def test_without_a_total_batch_no_degree_varies() -> None:
    spec = launched("megatron", MEGATRON.replace("--global-batch-size 64 ", ""))
    assert not {"tensor_model_parallel_size", "micro_batch_size", "sequence-parallel"} & spec.space.keys()
    assert "recompute_granularity" in spec.space


def test_torchtitan_gets_the_total_batch_that_it_had() -> None:
    degree = "--parallelism.tensor_parallel_degree 2"
    spec = launched("torchtitan", f"torchrun train.py --training.local-batch-size=8 {degree}")
    assert choices(spec)["local_batch_size"] == (8, 1, 2, 4, 16, 32, 64)
    assert spec.trainer.options["computed"] == {"global_batch_size": "8 * {ranks} / (2 * 1 * 1)"}
    assert "--training.local-batch-size={local_batch_size}" in spec.trainer.command
    unset = launched("torchtitan", "torchrun train.py --training.local_batch_size 8 --training.global_batch_size -1")
    assert (
        unset.trainer.command[unset.trainer.command.index("--training.global_batch_size") + 1] == "{global_batch_size}"
    )
    typed = launched("torchtitan", "torchrun train.py --training.local_batch_size 8 --training.global_batch_size 64")
    assert "computed" not in typed.trainer.options
    assert any("64 *" in rule for rule in typed.rules)


def test_deepspeed_s_settings_are_those_of_its_file() -> None:
    zero = {"stage": 2, "overlap_comm": True, "reduce_bucket_size": "auto"}
    Path("ds.json").write_text(json.dumps({"train_batch_size": "auto", "zero_optimization": zero}))
    spec = launched("deepspeed", "torchrun train.py --deepspeed ds.json --per_device_train_batch_size 4")
    assert choices(spec) == {
        "stage": (2, 0, 1, 3),
        "overlap_comm": (True, False),
        "per_device_train_batch_size": (4, 1, 2, 8, 16, 32, 64),
    }
    assert spec.trainer.options["files"] == {
        "ds.json": {"stage": "zero_optimization.stage", "overlap_comm": "zero_optimization.overlap_comm"}
    }
    assert spec.trainer.options["computed"] == {"gradient_accumulation_steps": "4 * 1 / {per_device_train_batch_size}"}


def test_flags_of_accelerate_stand_before_the_script() -> None:
    spec = launched("accelerate_fsdp", "accelerate launch --use_fsdp --fsdp_offload_params=true train.py")
    words = spec.trainer.command
    assert words.index("{fsdp_sharding_strategy}") < words.index("train.py")
    assert choices(spec)["fsdp_offload_params"] == (True, False)
    second = launched("accelerate_fsdp", "accelerate launch --use_fsdp --fsdp_version 2 train.py")
    assert "fsdp_sharding_strategy" not in second.space
    assert "fsdp_reshard_after_forward" in second.space


def test_nccl_is_set_by_variables_and_typed_buckets_beside_another_launch() -> None:
    command = "torchrun train.py --ddp_bucket_cap_mb 30"
    spec = launched("nccl", command, options={"env": {"NCCL_ALGO": "Tree", "TAG": "a"}})
    assert choices(spec)["NCCL_ALGO"] == ("Tree", "auto", "Ring", "allreduce:Tree")
    assert choices(spec)["ddp_bucket_cap_mb"] == (30, 1, 5, 10, 25, 50, 100, 200)
    assert spec.trainer.options["env"]["TAG"] == "a"
    assert spec.trainer.options["env"]["NCCL_PROTO"] == "{NCCL_PROTO}"
    assert spec.trainer.options["unset"]["NCCL_MAX_NCHANNELS"] == 0
    both = launched(["megatron", "nccl"], MEGATRON)
    assert next(iter(both.space)) == "tensor_model_parallel_size"
    assert [*both.space][-1] == "NCCL_BUFFSIZE"


@pytest.mark.parametrize(
    ("launch", "command", "message"),
    [
        ("slurm", "train.py", "'slurm' is unknown; known: megatron"),
        ("deepspeed", "train.py", "finds nothing in the command that may vary"),
    ],
)
def test_a_launch_that_cannot_be_used_says_why(launch: str, command: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        launched(launch, command)


def test_the_flags_of_a_script_show_its_launch() -> None:
    assert launch_with_flags(["lr", *launches()["megatron"].typical_flags]) == "megatron"
    assert launch_with_flags(["lr", "micro-batch-size"]) is None


def test_each_launch_has_a_name_that_a_study_file_may_give() -> None:
    assert set(launches()) == set(get_args(LaunchName))
