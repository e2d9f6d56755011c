"""What a trainer of two ranks prints and reports: its own progress, and what no trainer should write."""

import json
from dataclasses import dataclass
from operator import attrgetter, itemgetter

from hypothesis import strategies as st

from tests.support.tests_fuzz.edits import JSON
from tests.support.tests_fuzz.values import BIG, SCALAR
from tuner.probe import DeviceSample
from tuner.trainers.command_options import PRESETS


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """What a trainer prints and reports, and what its devices show."""

    patterns: tuple[str, ...]
    printed: list[tuple[float, bytes]]
    """Time in seconds and bytes, in the order of time."""
    reported: list[tuple[float, str]]
    """Time in seconds and a line of the progress file."""
    samples: list[DeviceSample]
    exit_at_s: float
    exit_code: int


NUMERAL = (
    st.integers(0, 50).map(str)
    | st.sampled_from(
        ["12,800", "1.28e+04", "12.8K", "-1", "1e999", "nan", "²", "٣", "9" * 30, "9" * 5000, "..1.2.3", ""]
    )
    | BIG.map(str)
)
_LINES = (
    *("|  Iteration | {} |", "|  Samples | {} |", "iterations | {}", "total_timesteps | {}"),
    *("global_step={}", "SPS: {}"),
    *("Learning iteration {}/500", "Total timesteps: {}", "Epoch {}: 1%|x| {}/100 [00:01<00:10, 8.2it/s]"),
    *("CUDA out of memory. Tried to allocate {} GiB. GPU {} has a total capacity", "of which {} MiB is free"),
    *("Failed to allocate {} bytes on device 'cuda:{}'", "[rank{}]: Traceback (most recent call last)"),
    *("Process SpawnProcess-{}:", "-- Process {} terminated with"),
    *("ValueError: {}", "[tuner] process {} was killed by"),
    *("RuntimeError: NCCL error {}", "[Errno 98] Address already in use: {}", "\x1b[{}m", "loss {} step {}"),
)
PRINTED = st.builds(
    lambda form, first, second, end: (form.format(first, second) + end).encode(errors="surrogateescape"),
    st.sampled_from(_LINES),
    NUMERAL,
    NUMERAL,
    st.sampled_from(["\n", "\r", "\n\n", ""]),
) | st.binary(max_size=30).map(lambda chunk: chunk + b"\n")
MESSAGE = (
    st.fixed_dictionaries(
        {"type": st.sampled_from(["iteration", "failed", "ready", "done", "unread"]) | SCALAR},
        optional={
            **dict.fromkeys(("iteration", "samples", "rank", "busy_s", "alloc_retries"), SCALAR | st.integers(0, 50)),
            **dict.fromkeys(("t_s", "thin_from_s", "thin_by"), st.floats() | SCALAR),
            **dict.fromkeys(("detail", "kind"), JSON),
        },
    ).map(json.dumps)
    | st.builds(
        lambda rank, at: json.dumps({"type": "iteration", "rank": rank, "iteration": at}),
        st.integers(0, 1),
        st.integers(0, 50),
    )
    | st.text(max_size=20)
    | st.sampled_from(["[" * 5000, '{"type": "iteration", "iteration": 1' + "0" * 5000 + "}"])
)
TIME_S = st.floats(0.0, 40.0)
PERCENT = st.none() | st.floats(0.0, 100.0)
SAMPLE = st.builds(DeviceSample, t_s=TIME_S, device=st.integers(0, 1), util_pct=PERCENT, mem_used_mib=PERCENT)


@st.composite
def _outputs(draw: st.DrawFn) -> Output:
    """Draw a trainer of two ranks that may go on well, and the odd lines and messages between its own."""
    iterations, each_s = draw(st.integers(0, 30)), draw(st.floats(0.01, 2.0))
    printed = draw(st.lists(st.tuples(TIME_S, PRINTED), max_size=12))
    reported = draw(st.lists(st.tuples(TIME_S, MESSAGE), max_size=12))
    odd = draw(st.dictionaries(st.sampled_from(["samples", "busy_s", "t_s", "rank", "thin_by"]), SCALAR, max_size=2))
    odd_from = draw(st.integers(0, 40))
    for iteration in range(iterations):
        t_s = (iteration + 1) * each_s
        printed.append((t_s, f"Learning iteration {iteration}/500\nTotal timesteps: {64 * iteration}\n".encode()))
        for rank in range(2):
            fields = {"type": "iteration", "iteration": iteration, "rank": rank, "samples": 32 * iteration, "t_s": t_s}
            fields |= {"busy_s": t_s / 2} | (odd if iteration >= odd_from else {})
            reported.append((t_s, json.dumps(fields)))
    if draw(st.booleans()):
        reported = []
    return Output(
        patterns=draw(
            st.just(PRESETS["rsl_rl"].progress) | st.sampled_from([preset.progress for preset in PRESETS.values()])
        ),
        printed=sorted(printed, key=itemgetter(0)),
        reported=sorted(reported, key=itemgetter(0)),
        samples=sorted(draw(st.lists(SAMPLE, max_size=20)), key=attrgetter("t_s")),
        exit_at_s=draw(st.floats(0.0, 60.0)),
        exit_code=draw(st.sampled_from([0, 1, -9])),
    )


OUTPUTS = _outputs()
