"""How many samples a batch has."""

import importlib
from pathlib import Path
from typing import Any

import pytest

import tuner.count

torch = pytest.importorskip("torch")


class TensorDict(dict[str, Any]):
    """Has the form of a tensor and the parts of a dictionary, as the one of the library tensordict."""

    dtype, shape, batch_size = None, (64,), (64,)

    def dim(self) -> int:
        """Return the number of dimensions."""
        return 1


@pytest.fixture
def inputs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module that looks at inputs."""
    monkeypatch.syspath_prepend(str(Path(tuner.count.__file__).parent / "inside"))
    return importlib.import_module("tuner_inside.inputs")


def test_a_dictionary_with_the_form_of_a_tensor_is_a_dictionary(inputs: Any) -> None:
    policy = torch.zeros(64, 4)
    given = TensorDict(policy=policy)
    assert inputs.first_tensor((given,)) is policy
    assert inputs.samples((given,)) == 64
