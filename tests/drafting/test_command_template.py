import shlex

import pytest

from tuner.count import Flag
from tuner.drafting.command_template import command_with_values, template
from tuner.study.command_words import ranks, script, settings


def test_flags_of_all_usual_spellings_are_settings() -> None:
    for command, found in [
        ("train.py --num-envs 64 --lr=0.1", [("num-envs", "64"), ("lr", "0.1")]),
        ("train.py env.num_envs=64 +trainer.devices=2", [("env.num_envs", "64"), ("trainer.devices", "2")]),
        ("train.py --headless --seed -1", [("seed", "-1")]),
        ("train.py --headless", []),
    ]:
        assert [(one.name, one.value) for one in settings(command.split())] == found


def test_the_ranks_that_a_command_asks_for() -> None:
    for command, count in [
        ("torchrun --nproc-per-node 4 train.py", 4),
        ("accelerate launch --num_processes=2 train.py", 2),
        ("python train.py --devices 2", 2),
        ("torchrun --nnodes 2 --nproc-per-node 4 train.py", 4),
        ("accelerate launch --num_machines 2 --num_processes 8 train.py", 4),
        ("python train.py trainer.devices=8", 8),
        ("torchrun --nproc-per-node gpu train.py", None),
        ("python train.py --num_envs 64", None),
    ]:
        assert ranks(command.split()) == count


def test_placeholders_take_the_place_of_values() -> None:
    for command, searched, expected in [
        (
            "torchrun --nproc-per-node 2 train.py --batch-size 64",
            {"batch-size": "{batch_size}"},
            "torchrun --master-port {port} --nproc-per-node {ranks} train.py --batch-size {batch_size}",
        ),
        (
            "torchrun --nnodes=2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint gpu1:29500 train.py",
            {},
            "torchrun --nnodes={nodes} --nproc-per-node {local_ranks} --rdzv-backend c10d "
            "--rdzv-endpoint {head}:{port} train.py",
        ),
        (
            "accelerate launch --num_machines 2 --machine_rank 0 --main_process_ip gpu1 --main_process_port 29500 "
            "--num_processes 16 train.py",
            {},
            "accelerate launch --num_machines {nodes} --machine_rank {node_rank} --main_process_ip {head} "
            "--main_process_port {port} --num_processes {ranks} train.py",
        ),
        (
            "torchrun --standalone --nproc-per-node=2 train.py --batch_size=64",
            {"batch-size": "{batch_size}"},
            "torchrun --standalone --nproc-per-node={ranks} train.py --batch_size={batch_size}",
        ),
        (
            "python -m torch.distributed.run --nproc_per_node=2 train.py env.num_envs=64",
            {"num_envs": "{num_envs}"},
            "python -m torch.distributed.run --master-port {port} --nproc_per_node={ranks} train.py "
            "env.num_envs={num_envs}",
        ),
        (
            "accelerate launch --num_processes 2 --main_process_port 29500 train.py --output_dir out",
            {"batch_size": "{batch_size}"},
            "accelerate launch --num_processes {ranks} --main_process_port {port} train.py --output_dir {out_dir} "
            "--batch_size {batch_size}",
        ),
        (
            "torchrun --standalone --nproc-per-node 2 train.py --num-workers 0",
            {"prefetch_factor": "{prefetch_factor}"},
            "torchrun --standalone --nproc-per-node {ranks} train.py --num-workers 0 "
            "--prefetch-factor {prefetch_factor}",
        ),
        (
            "torchrun --standalone --nproc-per-node 2 train.py --lr 1",
            {"num_workers": "{num_workers}"},
            "torchrun --standalone --nproc-per-node {ranks} train.py --lr 1 --num_workers {num_workers}",
        ),
        (
            "python train.py --config-name=exp",  # of Hydra, which takes no flags of the script with dashes
            {"data.workers": "{workers}", "hydra.run.dir": "{out_dir}"},
            "python train.py --config-name=exp data.workers={workers} hydra.run.dir={out_dir}",
        ),
        (
            "python train.py --persistent-workers --lr 1",
            {"persistent-workers": "{flag:persistent-workers}", "amp": "{flag:amp}"},
            "python train.py {flag:persistent-workers} --lr 1 {flag:amp}",
        ),
        (
            "python train.py trainer.devices=2 seed=1",
            {"data.num_workers": "{num_workers}"},
            "python train.py trainer.devices={ranks} seed=1 data.num_workers={num_workers}",
        ),
        (
            "python -m pkg.train --num-envs 8",
            {"num_workers": "{num_workers}"},
            "python -m pkg.train --num-envs 8 --num-workers {num_workers}",
        ),
        (
            "python train.py --max_iterations 10 --max_steps 5000 --n 3 --set '{a}'",
            {"n": "{n}"},
            "python train.py --max_iterations {iterations} --max_steps 5000 --n {n} --set '{{a}}'",
        ),
        (
            "python train.py -b 16 --fp16 workers 2 lr 0.1 --lr 1",
            {"workers": "{workers}", "lr": "{lr}"},
            "python train.py -b 16 --fp16 workers {workers} lr 0.1 --lr {lr}",
        ),
        (
            "bash -c 'sed s/32/{batch_size}/ a.yaml > {out_dir}/a.yaml; train {other} {out_dir}/a.yaml'",
            {"batch_size": "{batch_size}"},
            "bash -c 'sed s/32/{batch_size}/ a.yaml > {out_dir}/a.yaml; train {{other}} {out_dir}/a.yaml'",
        ),
    ]:
        assert template(shlex.split(command), searched).words == tuple(shlex.split(expected))


def test_a_flag_is_spelled_as_the_parser_knows_it() -> None:
    flags = (Flag(names=("batch_size",), value="20"), Flag(names=("use-optimizer",), is_switch=True))
    words = shlex.split("python main.py --use-optimizer")
    assert template(words, {"batch_size": "{batch_size}"}, flags=flags).words[3:] == ("--batch_size", "{batch_size}")


def test_a_placeholder_in_a_variable_is_enough() -> None:
    assert template(["train"], {"batch": "{batch}"}, ["{batch}"]).words == ("train",)


def test_replaced_words_are_reported() -> None:
    told = template(["train", "--devices", "2", "--n=3"], {"n": "{n}", "m": "{m}"}).changes
    assert told == (("--devices 2", "--devices {ranks}"), ("--n=3", "--n={n}"), ("", "--m {m}"))


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("torchrun --nproc-per-node 2 src/train.py --n 3", "src/train.py"),
        ("python -m torch.distributed.run -m pkg.train --n 3", "pkg/train.py"),
        ("./train --n 3", None),
    ],
)
def test_the_script_of_a_command(command: str, path: str | None) -> None:
    assert script(command.split()) == path


def test_a_typed_command_takes_the_values_of_a_config_and_nothing_else() -> None:
    for command, searched, values, expected in [
        (
            "torchrun --nproc-per-node 2 train.py --batch-size 64 --output_dir out --max-steps 50",
            {"batch-size": "{batch_size}", "workers": "{workers}", "amp": "{flag:amp}"},
            {"batch_size": 32, "workers": 4, "amp": True},
            "torchrun --nproc-per-node 2 train.py --batch-size 32 --output_dir out --max-steps 50 --workers 4 --amp",
        ),
        (
            "python train.py task=a num_envs=8",
            {"num_envs": "{num_envs}", "hydra.run.dir": "{out_dir}"},
            {"num_envs": 16},
            "python train.py task=a num_envs=16",
        ),
        ("train.py --amp -b 3", {"amp": "{flag:amp}", "b": "{b}"}, {"amp": False, "b": 4}, "train.py -b 4"),
        ("train.py --x {a}", {"j": "{j}"}, {}, "train.py --x {a}"),
    ]:
        made = template(command.split(), searched).words
        assert command_with_values(command.split(), made, values, {}, {}) == tuple(expected.split())
        assert command_with_values([*command.split(), "--more"], made[:2], values, {}, {}) is None


def test_a_flag_is_not_added_with_the_scripts_own_value() -> None:
    words = ["train.py", "--batch-size", "8"]
    made = template(words, {"batch-size": "{batch_size}", "workers": "{workers}", "prefetch": "{prefetch}"}).words
    values = {"batch_size": 8, "workers": 4, "prefetch": 2}
    assert command_with_values(words, made, values, {"batch_size": 8, "workers": 0, "prefetch": 2}, {}) == (
        *words,
        "--workers",
        "4",
    )


def test_a_flag_of_a_launcher_is_typed_before_the_script_where_it_changes() -> None:
    words = ["accelerate", "launch", "train.py", "--batch", "8"]
    made = ["accelerate", "launch", "--offload", "{offload}", "train.py", "--batch", "{batch}"]
    own = {"batch": 8, "offload": False}
    assert command_with_values(words, made, {"batch": 4, "offload": False}, own, {}) == (*words[:4], "4")
    assert command_with_values(words, made, own | {"offload": True}, own, {}) == (
        *words[:2],
        "--offload",
        "true",
        *words[2:],
    )


def test_a_short_flag_is_the_long_one_of_the_script() -> None:
    flags = (Flag(names=("batch-size", "b")), Flag(names=("amp",), is_switch=True))
    words = ["python", "train.py", "-b", "4", "--amp", "data"]
    assert [(one.parameter, one.value) for one in settings(words, flags)] == [("batch_size", "4")]
    assert template(words, {"batch-size": "{batch_size}"}, flags=flags).words[3] == "{batch_size}"


def test_a_world_size_is_the_ranks_only_where_they_confirm_it() -> None:
    for command, placed, count in [
        ("python main.py --world-size 1 --rank 0", "1", None),
        ("torchrun --nproc-per-node 4 main.py --world-size 4", "{ranks}", 4),
        ("torchrun --nproc-per-node 4 main.py --world-size 1", "1", 4),
        ("python main.py --world-size 2", "2", 2),
    ]:
        words = command.split()
        made = template(words, {}).words
        assert (made[made.index("--world-size") + 1], ranks(words)) == (placed, count)
