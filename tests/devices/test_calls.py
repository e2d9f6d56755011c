"""Calls in a separate thread: their results, the time that a hanging call costs, and the end of the thread."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import suppress
from threading import Event

import pytest

from tuner.devices.drivers import Calls

PATIENCE_S = 30.0
"""How long a test waits for the thread before it fails."""
AT_ONCE_S = 0.01


@pytest.fixture
def hang() -> Iterator[Event]:
    """Return the event that a hanging call waits for."""
    hang = Event()
    yield hang
    hang.set()


def test_an_answer_is_given_and_an_error_raised() -> None:
    calls = Calls("test")
    assert calls.make("", PATIENCE_S, divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        calls.make("", PATIENCE_S, divmod, 7, 0)
    assert calls.make("", PATIENCE_S, threading.current_thread).name == "test"


def test_a_call_that_hangs_is_given_up_and_so_is_what_comes_after_it(hang: Event) -> None:
    calls, made = Calls("test"), []
    with pytest.raises(TimeoutError, match="the first"):
        calls.make("the first", AT_ONCE_S, hang.wait)
    for _ in range(3):
        with pytest.raises(TimeoutError, match="the first"):
            calls.make("the second", PATIENCE_S, made.append, 1)
    assert made == []


def test_once_it_returns_calls_are_made_again(hang: Event) -> None:
    calls, made = Calls("test"), Event()
    with pytest.raises(TimeoutError):
        calls.make("", AT_ONCE_S, hang.wait)
    hang.set()
    until = itertools.takewhile(lambda _: not made.is_set(), range(1_000_000))  # the thread ends a moment later
    for _ in until:
        with suppress(TimeoutError):
            calls.make("", PATIENCE_S, made.set)
    assert made.is_set()


def test_the_thread_ends_with_what_it_serves() -> None:
    calls = Calls("test")
    thread = calls.make("", PATIENCE_S, threading.current_thread)
    del calls
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
