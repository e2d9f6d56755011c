"""What is counted inside a training, what the training keeps of it, and trainings whose samples are hard to count."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import tuner.count
from tuner.count import Merger

HERE = Path(__file__).parent
BEGIN = """
    import copy, io, os, pickle, sys
    import torch
    import torch._dynamo.utils
    from torch import nn
    from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 1)

        def forward(self, given):
            return self.inner(given)

    torch.manual_seed(0)
    model = Net()
    other = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train(module, steps=6, rows=5):
        for _ in range(steps):
            optimizer.zero_grad()
            module(torch.ones(rows, 4)).sum().backward()
            optimizer.step()
"""
COUNTED = {
    "two_views_of_a_loader": "loader and module",
    "two_networks_and_a_loader": "loader; the module takes 2 times as many inputs",
    "a_critic_that_steps_more_often": "loader; the module takes 0.3",
    "two_networks_in_turn_by_epoch": "loader",
    "probes_of_what_a_network_has_learnt": "loader and module",
    "one_network_with_two_optimizers": "module",
    "evaluation_with_gradients": "module",
    "loss_of_a_test_in_training_mode": "module",
    "parts_of_one_data_set": "loader and module",
    "loaders_of_their_own_for_each_epoch": "loader and module",
    "evaluation_while_a_batch_waits": "loader and module",
    "another_network_evaluates": "loader and module",
    "labelled_and_unlabelled": "loader and module",
    "sequence_before_batch": "module",
    "module_without_inputs": "loader",
    "packed_sequences": "module",
    "sequences_without_padding": "loader; the module takes 0.125 times as many inputs",
    "points_of_all_samples_in_one": "loader; the module takes 64 times as many inputs",
    "series_of_two_lengths": "loader and module",
    "series_of_two_lengths_in_batches_of_their_own": "loader and module",
    "batches_in_parts": "loader and module; a batch is 32 samples, in parts",
    "samples_that_the_script_stacks": "loader and module; a batch is one sample",
    "dictionaries_of_pictures": "loader and module",
    "loader_of_single_pictures": "loader and module; a batch is one sample",
    "pictures_and_words": "module",
    "inputs_made_for_inference": "module",
    "computed_again_for_the_gradients": "module",
    "another_optimizer_goes_on": "module",
    "another_thread_computes_gradients": "module",
    "steps_inside_the_backward_pass": "module",
}
"""Training → what counts its samples: the beginning of the words."""
UNCOUNTED = {
    "two_views": "several times for each loss",
    "closure_is_called_again": "the same samples several times",
    "two_networks": "several networks",
    "single_samples": "single samples",
    "batches_used_twice": "the same samples several times",
    "batches_of_a_loader_used_twice": "only some of the steps",
    "rollouts_of_its_own": "also runs without gradients",
    "words_that_the_model_writes": "also runs without gradients",
    "nodes_of_graphs": "the first dimension of the inputs alone varies",
    "gradients_of_each_sample": "a function of torch.func",
}
"""Training → why nothing is counted."""
FIRST = 3
"""Counts begin at this step."""


@pytest.fixture(scope="module")
def forked() -> Iterator[Callable[[str, Path], str]]:
    """Return a function that runs code with counting, and returns what it prints; its counts go to a folder."""
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    environ = os.environ | {"PYTHONPATH": str(Path(tuner.count.__file__).parent / "inside"), "TUNER_COUNT": "nowhere"}
    command = [sys.executable, str(HERE / "forks.py")]
    with subprocess.Popen(command, env=environ, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        stdin, stdout = server.stdin, server.stdout

        def run(code: str, folder: Path) -> str:
            folder.mkdir()
            script = folder / "train.py"
            script.write_text(code)
            print(script, folder, file=stdin, flush=True)
            code = stdout.readline().strip()
            output = (folder / "output").read_text()
            assert code == "0", output
            return output

        yield run
        server.stdin.close()


@pytest.fixture
def counted(forked: Callable[[str, Path], str], tmp_path: Path) -> Callable[[str], tuple[str, list[dict[str, Any]]]]:
    """Return a function that runs a training with counting, and returns its output and what it told."""

    def run(code: str) -> tuple[str, list[dict[str, Any]]]:
        output = forked(dedent(BEGIN) + dedent(code), tmp_path / "counts")
        records = [record for _, record in told(tmp_path / "counts")]
        assert [record for record in records if record["type"] == "off"] == []
        return output, records

    return run


def told(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the records that the processes of a training have told, each with its process."""
    files = folder.glob("*.jsonl")
    return [(file.stem, json.loads(line)) for file in files for line in file.read_text().splitlines()]


@pytest.fixture
def merged(forked: Callable[[str, Path], str], tmp_path: Path) -> Callable[[str], tuple[Merger, list[int]]]:
    """Return a function that runs a training of the corpus; it returns what was heard, and the true samples."""

    def run(name: str) -> tuple[Merger, list[int]]:
        code = (HERE / "trainings.py").read_text()
        samples = forked(f"{code}\nfor samples in {name}():\n    print(samples)", tmp_path / name)
        merger = Merger()
        for process, record in told(tmp_path / name):
            assert record["type"] != "off", record
            merger.feed(process, record)
            list(merger.new_marks())
        return merger, [int(one) for one in samples.split()]

    return run


def last(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the last count."""
    return [record for record in records if record["type"] == "count"][-1]


def test_a_process_tells_what_has_started_it_and_when(counted: Any) -> None:
    output, records = counted("train(model, steps=1); print(os.getpid(), os.getppid())")
    process, start = records[:2]
    assert [process["pid"], *process["parents"]] == [int(word) for word in output.split()]
    assert start["t_s"] - 60 < process["began_s"] < start["t_s"]  # by another clock than `t_s`


def test_a_trained_module_is_copied_saved_and_scripted_as_without_counting(counted: Any) -> None:
    output, records = counted("""
        own_call = Net.__call__
        train(model)
        blob = pickle.dumps(model)
        torch.jit.script(model)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        with torch.serialization.safe_globals([Net, nn.Linear]):
            torch.load(file)
        hooks = [part._forward_pre_hooks for part in copy.deepcopy(model).modules()]
        print(b"tuner_inside" in blob, any(hooks), Net.__call__ is own_call)
    """)
    assert output.split() == ["False", "False", "False"]  # the last one: the class is watched
    assert last(records)["rows"] == 5 * 5


A_DICTIONARY_LIKE_A_TENSOR = """
import torch
from tuner_inside import inputs

class TensorDict(dict):  # as that of the library tensordict
    dtype, shape, batch_size = None, (64,), (64,)

    def dim(self):
        return 1

policy = torch.zeros(64, 4)
given = TensorDict(policy=policy)
print(inputs.first_tensor((given,)) is policy, inputs.samples((given,)))
"""


def test_a_dictionary_with_the_form_of_a_tensor_is_a_dictionary(
    forked: Callable[[str, Path], str], tmp_path: Path
) -> None:
    assert forked(A_DICTIONARY_LIKE_A_TENSOR, tmp_path / "counts").split() == ["True", "64"]


@pytest.mark.parametrize(
    ("source", "workers", "copies"),
    [
        ("records", 2, 2),  # each worker gives all records
        ("records", 16, 16),
        ("(record for record in records if record % count == place)", 2, 1),
        ("(0 * record for record in records)", 2, 1),  # labels that are always equal show nothing
    ],
)
def test_workers_that_give_the_same_samples_are_told(counted: Any, source: str, workers: int, copies: int) -> None:
    _, records = counted(f"""
        from torch.utils.data import IterableDataset, get_worker_info

        class Records(IterableDataset):
            def __iter__(self):
                records, place, count = range(120), get_worker_info().id, get_worker_info().num_workers
                return ((torch.rand(4), record) for record in {source})

        for given, labels in DataLoader(Records(), batch_size=5, num_workers={workers}):
            optimizer.zero_grad()
            model(given).sum().backward()
            optimizer.step()
    """)
    told = [record["loader"]["copies"] for record in records if record["type"] == "count"]
    assert (told[0], told[-1]) == (None, copies)


def test_the_class_of_a_batch_of_one_class_is_told(counted: Any) -> None:
    _, records = counted("""
        data = TensorDataset(torch.ones(100, 4), torch.arange(100) // 30)
        for given, labels in DataLoader(data, batch_size=10):
            optimizer.zero_grad()
            model(given).sum().backward()
            optimizer.step()
    """)
    assert last(records)["loader"]["labels"] == [0, 0, 0, 1, 1, 1, 2, 2]


def test_an_evaluation_and_a_save_are_told_as_pauses(counted: Any) -> None:
    _, records = counted("""
        torch.save(model, io.BytesIO())
        train(model, steps=3)
        with torch.no_grad():
            for _ in range(100):
                model(torch.ones(5, 4))
        torch.save(model, io.BytesIO())
        train(model, steps=1)
    """)
    kinds = [record["type"] for record in records]
    assert 1 <= kinds.count("pause") < 100
    assert kinds.index("pause") > kinds.index("start")


COME_AND_GO = """
    for _ in range(20):
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        train(model, steps=1)
"""


def test_optimizers_that_come_and_go_are_not_counted(forked: Callable[[str, Path], str], tmp_path: Path) -> None:
    forked(dedent(BEGIN) + dedent(COME_AND_GO), tmp_path / "counts")
    merger, kinds = Merger(), list[str]()
    for process, record in told(tmp_path / "counts"):
        merger.feed(process, record)
        kinds.append(record["type"])
    assert not list(merger.new_marks())
    assert "a new optimizer every few steps" in (merger.why_uncounted or "")
    assert kinds.count("start") < 12


def test_steps_that_are_alike_are_counted_exactly_between_two_records(counted: Any) -> None:
    _, records = counted("""
        sys.modules["tuner_inside.steps"].RECORD_EVERY_S = 1e9
        for number, (batch,) in enumerate(DataLoader(TensorDataset(torch.ones(303, 4)), batch_size=5)):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
            if number == 59:
                sys.modules["tuner_inside.steady_steps"].steady.due_s = 0
            if number == 40:
                for _ in range(100):
                    model(torch.ones(7, 4))  # with gradients that nobody computes
    """)
    told = last(records)  # at the last batch, whose samples are fewer
    assert (told["steps"], told["rows"], told["loader"]["rows"]) == (61, 303 - 5, 303)
    assert (told["forwards"], told["backwards"], told["loader"]["fed_steps"]) == (60 + 100, 60, 61)


def test_a_wrapper_that_goes_does_not_end_the_counting(counted: Any) -> None:
    _, records = counted("""
        wrapper = nn.Sequential(model)
        train(wrapper, steps=30)
        wrapper = None
        sys.modules["tuner_inside.steady_steps"].steady.due_s = 0
        train(model, steps=1)
    """)
    assert (last(records)["steps"], last(records)["rows"]) == (31, 29 * 5)


UNUSUAL = """
    sys.modules["tuner_inside.steps"].RECORD_EVERY_S = 1e9
    batches = iter(DataLoader(TensorDataset(torch.ones(5000, 4)), batch_size=5))
    for number in range(200):
        optimizer.zero_grad()
        model(next(batches)[0]).sum().backward()
        if number % 20 == 19:
            {unusual}
        if number == 198:
            sys.modules["tuner_inside.steady_steps"].steady.due_s = 0
        optimizer.step()
"""


@pytest.mark.parametrize("given", ["torch.ones(7, 4)", "next(batches)[0]"])
def test_an_evaluation_before_a_steady_step_changes_no_count(counted: Any, given: str) -> None:
    _, records = counted(UNUSUAL.format(unusual=f"with torch.no_grad(): model({given})"))
    told = last(records)
    assert (told["steps"], told["rows"], told["backwards"], told["no_gradient_forwards"]) == (199, 5 * 198, 198, 9)
    assert (told["loader"]["rows"], told["loader"]["batches"]) == (5 * 199, 199)


def test_steady_steps_with_further_passes_are_counted_exactly(counted: Any) -> None:
    _, records = counted(UNUSUAL.format(unusual="model(next(batches)[0]).sum().backward()"))
    told = last(records)
    assert (told["steps"], told["forwards"], told["backwards"]) == (199, 198 + 9, 198 + 9)
    assert told["rows"] == 5 * told["backwards"]


def test_an_accumulation_that_changes_is_counted_exactly_once_steps_are_alike(counted: Any) -> None:
    output, records = counted("""
        sys.modules["tuner_inside.steps"].RECORD_EVERY_S = 1e9
        rows = 0
        for number in range(60):
            optimizer.zero_grad()
            if number in (30, 45):
                model(torch.ones(7, 4))  # with gradients that nobody computes
            for _ in range(3 if number > 20 and number % 4 == 0 else 2):
                model(torch.ones(5, 4)).sum().backward()
                rows += 5 * (number > 0)
            if number == 59:
                sys.modules["tuner_inside.steady_steps"].steady.due_s = 0
            optimizer.step()
        print(rows)
    """)
    assert (last(records)["steps"], last(records)["rows"]) == (60, int(output))


def test_the_precision_skipped_steps_and_saves_are_told(counted: Any) -> None:
    output, records = counted("""
        scaler = torch.amp.GradScaler("cpu")
        for number in range(9):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(torch.ones(5, 4)).sum() * (float("inf") if number == 4 else 1)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            torch.save(model, io.BytesIO())
            torch.save(1, f=os.path.dirname(__file__) + "/last.pt")
        print(os.path.dirname(__file__))
    """)
    told = last(records)
    assert told["saves_to"] == [output.strip()]
    assert told["precision"] == {"autocast": ["bfloat16"], "tf32": False, "scaled": True}
    assert told["skipped"] == 1
    assert 0 < told["saves_s"] < 60


def test_a_smaller_network_that_is_trained_for_long_is_a_pause(counted: Any) -> None:
    _, records = counted("""
        train(model)
        optimizer_of_less = torch.optim.SGD([model.inner.bias], lr=0.01)
        for _ in range(60):
            optimizer_of_less.step()
    """)
    assert [record["type"] for record in records][-1] == "pause"


def test_another_module_of_the_same_class_is_not_counted(counted: Any) -> None:
    _, records = counted("""
        train(model)
        other(torch.ones(7, 4)).sum().backward()
        train(model, steps=1)
    """)
    assert last(records)["rows"] == 6 * 5


def test_a_plain_module_that_only_holds_others_ends_no_counting(counted: Any) -> None:
    _, records = counted("""
        holder = nn.Module()
        holder.net = other
        optimizer = torch.optim.SGD(holder.parameters(), lr=0.01)
        train(holder.net)
    """)
    assert last(records)["rows"] == 4 * 5  # the first two steps show that the holder is never called


def test_a_tensor_that_is_given_again_in_later_steps_is_noticed(counted: Any) -> None:
    _, records = counted("""
        sys.modules["tuner_inside.steps"].RECORD_EVERY_S = 0
        train(model, steps=20)
        given = torch.ones(5, 4)
        for _ in range(20):
            optimizer.zero_grad()
            model(given).sum().backward()
            optimizer.step()
    """)
    assert 15 < last(records)["repeated_inputs"] < 20  # until the first one is noticed, nobody looks for changes


def test_another_wrapper_of_the_call_of_all_modules_is_called(counted: Any) -> None:
    output, _ = counted("""
        train(model, steps=20)
        own, called = nn.Module.__call__, []
        nn.Module.__call__ = lambda self, *args, **kwargs: called.append(self) or own(self, *args, **kwargs)
        train(model, steps=1)
        print(model in called)
    """)
    assert output.split() == ["True"]


@pytest.mark.parametrize("compiled", ["torch.compile(model, backend='eager')", "model"])
def test_a_compiled_module_counts_with_its_graphs_unchanged(counted: Any, compiled: str) -> None:
    output, records = counted(f"""
        sys.modules["tuner_inside.steps"].RECORD_EVERY_S = 1e9
        module = {compiled}
        if module is model:
            model.compile(backend="eager")
        train(module, steps=30)
        counters = torch._dynamo.utils.counters
        print(counters["stats"]["unique_graphs"], sum(counters["graph_break"].values()))
        called = []
        sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name))
        train(module, steps=3)
        sys.setprofile(None)
        print(called.count("training"))  # a compiled module's property
        module.eval()
        module(torch.ones(7, 4)).sum().backward()
        module.train()
        sys.modules["tuner_inside.steady_steps"].steady.due_s = 0
        train(module, steps=1)
    """)
    assert output.split() == ["1", "0", "0"]
    assert (last(records)["steps"], last(records)["rows"]) == (34, 5 * 33)


def test_the_compiler_leaves_the_counting_out_of_a_compiled_step(counted: Any) -> None:
    output, records = counted("""
        @torch.compile(backend="eager")
        def step(given):
            optimizer.zero_grad()
            model(given).sum().backward()
            optimizer.step()

        for number in range(6):
            step(torch.ones(5, 4))
            if number in (1, 5):
                print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    """)
    early, late = output.split()[-2:]
    assert early == late
    assert last(records)["steps"] == 6


def test_a_module_that_is_called_inside_a_compiled_function_breaks_no_graph(counted: Any) -> None:
    output, _ = counted("""

        @torch.compile(backend="eager")
        def loss(given):
            return model(given).sum()

        for _ in range(6):
            optimizer.zero_grad()
            loss(torch.ones(5, 4)).backward()
            optimizer.step()
        print(sum(torch._dynamo.utils.counters["graph_break"].values()))
    """)
    assert output.split() == ["0"]


def test_a_compiled_step_of_the_optimizer_is_counted(counted: Any) -> None:
    _, records = counted("""
        step = torch.compile(optimizer.step, backend="eager")
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.ones(5, 4)).sum().backward()
            step()
    """)
    assert last(records)["rows"] == 5 * 5


@pytest.mark.parametrize(
    "backward",
    [
        "loss.backward()",
        """torch.autograd.Variable._execution_engine.run_backward(
                tensors=(loss,), grad_tensors=(torch.ones_like(loss),), keep_graph=False, create_graph=False, inputs=(),
                allow_unreachable=True, accumulate_grad=True
            )""",
    ],
    ids=["torch", "Megatron-LM"],
)
def test_the_losses_of_the_first_steps_are_told(counted: Any, backward: str) -> None:
    _, records = counted(f"""
        for number in range(4):
            optimizer.zero_grad()
            loss = model(torch.ones(5, 4)).sum() * 0 + number
            {backward}
            optimizer.step()
        optimizer.step()
    """)
    assert last(records)["losses"] == {"0": 0, "1": 1, "2": 2, "3": 3}
    assert [record["seed"] for record in records if record["type"] == "start"] == [0]
    assert last(records)["rows"] == 5 * 3


FLOPS = """
    os.environ["TUNER_COUNT_FIRST"] = "{wanted}"
    sys.modules["tuner_inside.flops"].flops.__init__()
    model = torch.compile(nn.Linear(4, 3), backend="eager") if {compiled} else nn.Linear(4, 3)
    optimizer = torch.optim.Adam(model.parameters())
    for number in range(9):
        optimizer.zero_grad()
        loss = model(torch.full((5, 4), float(number))).pow(2).mean()
        loss.backward()
        optimizer.step()
        print(loss.item())
"""


def test_one_step_s_operations_are_counted_and_change_no_loss(counted: Any, tmp_path: Path) -> None:
    output, records = counted(FLOPS.format(wanted=1, compiled=False))
    assert last(records)["flops"] == 2 * (2 * 5 * 4 * 3)  # forward, and the gradient of the weights
    (tmp_path / "counts").rename(tmp_path / "with")
    assert counted(FLOPS.format(wanted="", compiled=False))[0] == output
    (tmp_path / "counts").rename(tmp_path / "without")
    assert last(counted(FLOPS.format(wanted=1, compiled=True))[1])["flops"] is None


def test_an_evaluation_over_a_part_of_the_same_data_is_not_counted_as_training(counted: Any) -> None:
    _, records = counted("""
        data = TensorDataset(torch.ones(30, 4))
        training = DataLoader(data, batch_size=10, sampler=SubsetRandomSampler(range(20)))
        validation = DataLoader(data, batch_size=10, sampler=SubsetRandomSampler(range(20, 30)))
        for _ in range(3):
            for _, (batch,) in zip(range(len(training)), training):  # nobody asks for more
                optimizer.zero_grad()
                model(batch).sum().backward()
                optimizer.step()
            with torch.no_grad():
                for batch, in validation:
                    model(batch)
        train(model, steps=1)
    """)
    assert last(records)["loader"]["rows"] == 3 * 20
    assert (last(records)["loader"]["passes"], last(records)["loader"]["pass_rows"]) == (2, 20)


@pytest.mark.parametrize(("layer", "kind"), [("BatchNorm1d", "each"), ("SyncBatchNorm", "all"), ("LayerNorm", None)])
def test_a_norm_over_the_batch_is_told(counted: Any, layer: str, kind: str | None) -> None:
    _, records = counted(f"""
        model.inner = nn.Sequential(nn.Linear(4, 3), nn.{layer}(3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        nn.SyncBatchNorm.forward = lambda self, given: given * self.weight
        train(model)
    """)
    (begin,) = [record for record in records if record["type"] == "start"]
    assert begin["batch_norm"] == kind


@pytest.mark.parametrize("name", COUNTED)
def test_samples_are_counted_as_they_are(merged: Any, name: str) -> None:
    merger, true = merged(name)
    training = merger.training()
    assert training is not None, merger.why_uncounted
    assert training.witness.startswith(COUNTED[name])
    last_step = max(process.steps for process in merger.processes.values())
    assert last_step >= FIRST + 1
    assert merger.samples_at(last_step) == pytest.approx(sum(true[FIRST:last_step]), abs=max(true))


def test_a_sample_has_the_same_shape_whatever_the_batch(merged: Any) -> None:
    training = merged("sequence_before_batch")[0].training()
    assert training is not None
    assert training.signature.sample == "35 int64"


@pytest.mark.parametrize("name", UNCOUNTED)
def test_samples_that_cannot_be_known_are_not_counted(merged: Any, name: str) -> None:
    merger, _ = merged(name)
    assert merger.training() is None
    assert UNCOUNTED[name] in str(merger.why_uncounted)


def test_the_end_of_a_pass_is_told_as_a_pause(counted: Any) -> None:
    _, records = counted("""
        for (batch,) in DataLoader(TensorDataset(torch.ones(30, 4)), batch_size=5):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
    """)
    assert "pause" in [record["type"] for record in records]


@pytest.mark.parametrize(
    ("collate", "call"), [("None", "model(batch[0])"), ("lambda rows: {'given': torch.ones(5, 4)}", "model(**batch)")]
)
def test_a_step_takes_few_calls(counted: Any, collate: str, call: str) -> None:
    output, records = counted(f"""
        calls = [0]

        def note(frame, event, _):
            calls[-1] += event == "call" and "tuner_inside" in frame.f_code.co_filename

        for batch in DataLoader(TensorDataset(torch.ones(500, 4)), batch_size=5, collate_fn={collate}):
            optimizer.zero_grad()
            {call}.sum().backward()
            optimizer.step()
            calls.append(0)
            sys.setprofile(note)
        sys.setprofile(None)
        print(sorted(calls)[len(calls) // 2])
    """)
    assert int(output) <= 4  # the loader's, the module's, the backward pass's and the optimizer's
    assert last(records)["steps"] >= 12


def test_an_error_inside_switches_its_part_off_and_the_training_goes_on(
    forked: Callable[[str, Path], str], tmp_path: Path
) -> None:
    script = """
        class Odd:
            @property
            def batch_sizes(self):
                raise ValueError("nobody knows")

        for batch in DataLoader(range(6), batch_size=1, collate_fn=lambda _: Odd()):
            train(model, steps=1)
        print("done")
    """
    assert forked(dedent(BEGIN) + dedent(script), tmp_path / "counts") == "done\n"
    records = [record for _, record in told(tmp_path / "counts")]
    assert [record["part"] for record in records if record["type"] == "off"] == ["loaders"]
    assert last(records)["rows"] == 5 * 5


def test_each_training_is_tried() -> None:
    names = re.findall(r"^def (\w+)\(\) -> Iterator", (HERE / "trainings.py").read_text(), re.MULTILINE)
    assert {*names} == {*COUNTED, *UNCOUNTED}
