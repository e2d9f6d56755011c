"""Asks the driver of some cards, in calls that cannot hang the tuner."""

import weakref
from collections.abc import Callable, Collection
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from types import ModuleType
from typing import Any, ClassVar, TypeVar

from tuner.errors import DeviceError, DeviceLostError

_Answer = TypeVar("_Answer")
_Requests = SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None]
"""For each call, what takes its answer, the function and its arguments; None ends the thread."""


class Calls:
    """Runs calls of a driver, one after another, in a thread of its own: a call that hangs cannot hang the tuner.

    While a call hangs, every further call fails at once with TimeoutError. Once the hanging call returns, calls work
    again. The thread ends with this object, unless a call hangs in it.
    """

    def __init__(self, name: str) -> None:
        """Start the thread, and give it a name."""
        self._requests: _Requests = SimpleQueue()
        self._overdue: tuple[Future[Any], str] | None = None
        """The answer of the last call that took too long, and the `problem` of that call."""
        Thread(target=_serve, args=(self._requests,), name=name, daemon=True).start()
        weakref.finalize(self, self._requests.put, None)

    def make(self, problem: str, limit_s: float, call: Callable[..., _Answer], *arguments: Any) -> _Answer:
        """Return what `call` returns, or raise what it raises.

        Raises TimeoutError when the call takes longer than `limit_s`, or when an earlier call still hangs. The error's
        message is the `problem` of the call that hangs.
        """
        if self._overdue is None or self._overdue[0].done():  # no call hangs
            answer: Future[_Answer] = Future()
            self._requests.put((answer, call, arguments))
            try:
                return answer.result(limit_s)
            except TimeoutError:
                self._overdue = answer, problem
        raise TimeoutError(self._overdue[1])


def _serve(requests: _Requests) -> None:
    """Make the requested calls, one after another, until None is requested."""
    for answer, call, arguments in iter(requests.get, None):
        try:
            answer.set_result(call(*arguments))
        except Exception as error:  # noqa: BLE001  the thread that made the call raises it
            answer.set_exception(error)
        del answer, call, arguments  # otherwise these objects would live until the next call


class NoDriverError(DeviceError):
    """This machine has no such driver, or the driver has no card."""


class Driver:
    """A driver whose library has been started. Subclasses read `library`, `started` and `_open_s`.

    Raises NoDriverError without a driver, and DeviceError when the driver does not start.
    """

    MAKER: ClassVar[str]
    LIBRARY: ClassVar[str]
    LOOK: ClassVar[str]
    """Where a person finds out what is wrong: the end of a message."""
    NO_DRIVER: ClassVar[Collection[int]]
    """The errors of a machine without a driver, or without a card."""
    NOT_OFFERED: ClassVar[Collection[int]]
    """The errors of a call that this card or driver does not support."""
    LOST: ClassVar[Collection[int]] = ()
    """The errors of a card that cannot be used any more."""

    def __init__(
        self,
        library: ModuleType,
        error: type[Exception],
        start: Callable[[], Any],
        answer_s: float = 5.0,
        open_s: float = 120.0,
    ) -> None:
        """Start the library. A call that takes longer than its limit counts as hanging.

        Args:
            library: the module with the driver's functions.
            error: the class of the errors that these functions raise.
            start: the function that starts the library.
            answer_s: the seconds for a call, which normally takes microseconds. It hangs, for example, when its card
                has fallen off the bus.
            open_s: the seconds for a call that may wake up the cards. Waking up takes seconds per card when the driver
                does not stay loaded.
        """
        self.library = library
        self._error = error
        self._answer_s = answer_s
        self._open_s = open_s
        self._calls = Calls(self.LIBRARY)
        try:
            self.started = self._calls.make("", open_s, start)
            """What `start` has returned."""
        except TimeoutError as hanging:
            raise DeviceError(f"the {self.MAKER} driver hangs as it starts; {self.LOOK}") from hanging
        except error as failed:
            why = f"({self.LIBRARY}: {failed})"
            if self._code(failed) in self.NO_DRIVER:
                raise NoDriverError(f"there is no {self.MAKER} driver on this machine {why}") from failed
            raise DeviceError(f"the {self.MAKER} driver does not start {why}; {self.LOOK}") from failed

    def _code(self, error: Any) -> int | None:
        """Return the number of an error of the library; None for any other error."""
        raise NotImplementedError

    def ask(
        self, subject: str, call: Callable[..., _Answer], *arguments: Any, limit_s: float | None = None
    ) -> _Answer | None:
        """Return what `call` returns, or None when the card or the driver does not support the call.

        `limit_s` replaces the usual time after which a call counts as hanging. Raises DeviceLostError when the card is
        lost, and DeviceError for every other error. The message names `subject`, or the subject of an earlier call that
        still hangs.
        """
        problem = f"{subject} does not answer {call.__name__}"
        try:
            return self._calls.make(problem, limit_s or self._answer_s, call, *arguments)
        except TimeoutError as error:
            raise DeviceError(f"{error}: the call hangs in the driver; {self.LOOK}") from error
        except self._error as error:
            if self._code(error) in self.NOT_OFFERED:
                return None
            kind = DeviceLostError if self._code(error) in self.LOST else DeviceError
            raise kind(f"{problem} ({self.LIBRARY}: {error}); {self.LOOK}") from error
