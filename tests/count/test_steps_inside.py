"""What is counted inside a training, and what the training keeps of it: nothing in its modules."""

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import tuner.count

INSIDE = Path(tuner.count.__file__).parent / "inside"
BEGIN = """
    import copy, io, pickle
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


@pytest.fixture
def counted(tmp_path: Path):
    """Return a function that runs a training with counting, and returns its output and what it told."""

    def run(code: str) -> tuple[str, list[dict[str, Any]]]:
        script, folder = tmp_path / "train.py", tmp_path / "counts"
        script.write_text(dedent(BEGIN) + dedent(code))
        folder.mkdir()
        environ = os.environ | {"PYTHONPATH": str(INSIDE), "TUNER_COUNT": str(folder)}
        done = subprocess.run([sys.executable, str(script)], env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        records = [json.loads(line) for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]
        assert [record for record in records if record["type"] == "off"] == []
        return done.stdout, records

    return run


def last(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the last count."""
    return [record for record in records if record["type"] == "count"][-1]


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


def test_another_module_of_the_same_class_is_not_counted(counted: Any) -> None:
    _, records = counted("""
        train(model)
        other(torch.ones(7, 4)).sum().backward()
        train(model, steps=1)
    """)
    assert last(records)["rows"] == 6 * 5


@pytest.mark.parametrize("compiled", ["torch.compile(model, backend='eager')", "model"])
def test_a_compiled_module_counts_with_its_graphs_unchanged(counted: Any, compiled: str) -> None:
    output, records = counted(f"""
        module = {compiled}
        if module is model:
            model.compile(backend="eager")
        train(module)
        counters = torch._dynamo.utils.counters
        print(counters["stats"]["unique_graphs"], sum(counters["graph_break"].values()))
    """)
    assert output.split() == ["1", "0"]
    assert last(records)["rows"] == 5 * 5


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
    assert (last(records)["loader"]["passes"], last(records)["loader"]["size"]) == (2, 20)


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
