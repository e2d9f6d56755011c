"""The results of `tuner scale` as a versioned JSON file, which `tuner compare` reads on any machine.

A rank is a process of a training, on a device of its own.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config

from tuner.devices.found import Link as PairLink
from tuner.errors import TunerError
from tuner.export import write_files
from tuner.probe import DeviceSummary, FailureKind
from tuner.study import open_regular

FORMAT = "tuner_scale"
VERSION = 2
"""The version of the file's form. A reader refuses every other version."""
COUNTS = (1, 2, 4, 8)
"""The numbers of GPUs that are measured, as far as the machine has them."""
LINKS = "allreduce"
"""The name of the workload that measures the links."""

Mode = Literal["single", "beside", "joined"]
"""How the ranks of a measurement work.

- `single`: one rank, alone on the machine
- `beside`: one of several programs with a rank each, all at the same time
- `joined`: ranks of one program that exchange gradients or other results, as in training
"""
Route = Literal["nvlink", "p2p", "host", "gloo", "nccl"]
"""How data goes from rank to rank: over NVLink, from card to card over PCIe, through the host's memory, on CPUs,
or over nodes as NCCL chooses."""
Amount = Annotated[float, Field(gt=1e-12, lt=1e18)]
"""A rate, a time or a number of samples; a file with another number is damaged."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One measurement: a program that trains, or sums up buffers, on some devices."""

    workload: str
    size: int | None
    """The workload's size; None where the trainer has none."""
    mode: Mode
    gpus: Annotated[tuple[int, ...], Field(min_length=1)]
    """The positions of the devices in the list of the machine's devices."""
    route: Route | None = None
    """How the ranks exchange data; None for a single rank."""
    beside: Annotated[int, Field(ge=1)] = 1
    """How many programs run at the same time, this program included."""
    samples_per_s: Amount | None = None
    """The samples per second of all ranks of the program together."""
    samples_per_s_se: Annotated[float, Field(ge=0.0, lt=1e18)] | None = None
    samples_per_step: Amount | None = None
    """The samples of all ranks in a step, which is an iteration of a trainer."""
    window_s: Amount | None = None
    devices: tuple[DeviceSummary, ...] = ()
    """Utilisation, activity of multiprocessors, memory and power of each device."""
    failure: FailureKind | None = None
    """Why there is no number."""
    detail: str = ""
    """The line that shows the failure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """What was measured: a workload, or a case of a study."""

    name: str
    text: str
    unit: str
    """What a size counts."""


@with_config(ConfigDict(allow_inf_nan=False))
@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """All that one call of `tuner scale` has measured on one machine."""

    written_at: str
    """UTC, ISO 8601."""
    tuner: str
    """The version of the tuner."""
    machine: Mapping[str, str]
    """Facts about the kind of machine; none of them identifies this machine."""
    devices: Annotated[tuple[str, ...], Field(min_length=1)]
    """The model of each device."""
    on_gpu: bool
    links: tuple[PairLink, ...] = ()
    """How each pair of cards is connected, as the driver says."""
    subjects: tuple[Subject, ...] = ()
    points: tuple[Measurement, ...] = ()


_ADAPTER = TypeAdapter(Results)
MOST_BYTES = 64 * 2**20
"""No results are larger: each run takes less than a kilobyte."""


def write(results: Results, path: Path) -> None:
    """Write the results. A reader finds the whole old file or the whole new file. Raises OutputError."""
    body = {FORMAT: VERSION, **_ADAPTER.dump_python(results, mode="json")}
    write_files(path.parent.resolve(), {path.name: f"{json.dumps(body, indent=1)}\n".encode()})


def read(path: Path) -> Results:
    """Return the results of a file. Raises TunerError where it is damaged, too large, or of another version.

    The file may come from another machine, so nothing in it is trusted.
    """
    remedy = "`tuner scale --out FILE` writes such files"
    try:
        with open_regular(path) as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES // 2**20} MiB")
        body: Any = json.loads(content)
        json.dumps(body, ensure_ascii=False).encode()  # called for its UnicodeError: half a surrogate pair is no text
    except OSError as error:
        raise TunerError(f"{path} cannot be read: {error.strerror}; {remedy}") from error
    except (ValueError, RecursionError) as error:
        raise TunerError(f"{path} is no JSON file: {error}; {remedy}") from error
    version = body.get(FORMAT) if isinstance(body, dict) else None
    if version != VERSION:
        problem = f"its {FORMAT!r} is {version}, and this tuner reads {VERSION}; measure again"
        raise TunerError(f"{path} is no result of `tuner scale`: {problem}")
    try:
        return _ADAPTER.validate_python(body)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise TunerError(f"{path} is damaged at {place or 'its top'}: {first['msg']}; measure again") from error
