"""The exception that began a crash, among several exceptions: on logs of real launchers, and in single cases."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests_replays import replay

from tuner.probe.evidence import RootCauses
from tuner.probe.probe_plan import LinePatterns
from tuner.probe.result import Failure, FailureKind

LOGS = Path(__file__).parents[1] / "data/failures"
ITERATIONS = LinePatterns(patterns=(r"^iteration (?P<iteration>\d+)$",))


def failure_of(log: str, exit_code: int | None = 1) -> Failure:
    failure = replay(LOGS / log, ITERATIONS, exit_code=exit_code).failure
    assert failure is not None
    return failure


def test_what_followed_from_a_crash_does_not_hide_it() -> None:
    for log, cause, rank in [
        ("torchrun_bad_label", "[rank1]: ValueError: labels out of range", 1),
        ("torchrun_broken_record", "[rank1]: RuntimeError: record 1 cannot be read", 1),
        ("spawned_rank", "KeyError: 'obs'", None),
        ("accelerate_shapes", "RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x63 and 64x10)", None),
        ("data_loader", "LookupError: no picture 11 in the archive", None),
        (
            "sb3_unknown_environment",
            "gymnasium.error.NameNotFound: Environment `Walkr` doesn't exist. Did you mean: `Walker2d`?",
            None,
        ),
    ]:
        failure = failure_of(f"crash/{log}.log")
        assert (failure.kind, failure.detail, failure.rank) == (FailureKind.CRASH, f"exit code 1: {cause}", rank)


def test_a_launcher_does_not_hide_what_its_torch_lacks() -> None:
    failure = failure_of("missing_dependency/torchrun_without_nccl.log")
    assert failure.detail == "RuntimeError: Distributed package doesn't have NCCL built in"


def root(*lines: str, apart_s: float = 1.0) -> str | None:
    causes = RootCauses()
    for place, line in enumerate(lines):
        causes.feed(line, place * apart_s)
    return causes.root_cause and causes.root_cause.text


CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:36230"
HEADER, FRAME = "Traceback (most recent call last):", '  File "a.py", line 7, in run'


def test_the_cause_counts_wherever_it_is_printed() -> None:
    assert root(f"[rank0]: {CLOSED}", "[rank1]: ValueError: 3") == "[rank1]: ValueError: 3"
    assert root("[rank1]: ValueError: 3", f"[rank0]: {CLOSED}") == "[rank1]: ValueError: 3"


def test_of_errors_of_several_ranks_the_first_is_reported() -> None:
    assert root("[rank2]: ValueError: 3", "[rank0]: RuntimeError: a peer has gone") == "[rank2]: ValueError: 3"


def test_the_last_exception_of_a_process_counts() -> None:
    assert root("[rank0]: KeyError: 'a'", "[rank0]: ValueError: no rung a") == "[rank0]: ValueError: no rung a"


def test_a_chain_that_begins_with_a_closed_connection_is_no_cause() -> None:
    link = "During handling of the above exception, another exception occurred:"
    chain = [HEADER, FRAME, CLOSED, "", link, "", HEADER, FRAME, "RuntimeError: training failed"]
    assert root(*chain) is None
    assert root(HEADER, FRAME, "ValueError: 3", "", link, "", HEADER, FRAME, CLOSED) == "ValueError: 3"


def test_an_exception_that_a_process_survived_is_no_cause() -> None:
    lines = ["[rank0]: KeyError: 'no wandb'", "[rank1]: ValueError: 3"]
    assert root(*lines, apart_s=RootCauses.SURVIVED_S + 1) == "[rank1]: ValueError: 3"
    assert root(*lines) == "[rank0]: KeyError: 'no wandb'"


def test_the_last_line_of_a_traceback_is_an_exception_whatever_its_name() -> None:
    for prefix in ["", "[rank1]: ", "[default1]:", "[1,1]<stderr>: ", "1: "]:
        lines = [
            HEADER,
            FRAME,
            "    run(3)",
            "iteration 7",
            "gym.error.NameNotFound: no such thing",
            "queue.Empty: later",
        ]
        assert root(*(prefix + line for line in lines)) == f"{prefix}gym.error.NameNotFound: no such thing"


def test_a_child_is_distinguished_from_the_process_that_waits_for_it() -> None:
    child = ["Process ForkServerProcess-1:", HEADER, FRAME, "gym.error.NameNotFound: no such thing"]
    parent = [HEADER, FRAME, "RuntimeError: a worker has gone"]
    assert root(*child, *parent) == "gym.error.NameNotFound: no such thing"


@given(st.lists(st.sampled_from(["", "[rank1]: "]).flatmap(lambda one: st.text(max_size=20).map(one.__add__))))
def test_no_output_breaks_the_search(lines: list[str]) -> None:
    root(HEADER, *lines, HEADER)
