"""Runs calls that may never return in a separate thread, so that the caller does not wait for ever."""

import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

_Reply = TypeVar("_Reply")
_Asked = SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None]


class Calls:
    """Runs one call after another in one thread. The thread ends with this object, unless a call hangs in it.

    While a call hangs, every further call fails at once with TimeoutError. Once the hanging call returns, calls work
    again.
    """

    def __init__(self, name: str) -> None:
        self._asked: _Asked = SimpleQueue()
        self._overdue: tuple[Future[Any], str] | None = None
        Thread(target=_serve, args=(self._asked,), name=name, daemon=True).start()
        weakref.finalize(self, self._asked.put, None)

    def make(self, what: str, limit_s: float, call: Callable[..., _Reply], *arguments: Any) -> _Reply:
        """Return what `call` returns, or raise what it raises.

        Raises TimeoutError when the call takes longer than `limit_s`, or when an earlier call still hangs. The error's
        message is the `what` of the call that hangs.
        """
        if self._overdue is None or self._overdue[0].done():
            answer: Future[_Reply] = Future()
            self._asked.put((answer, call, arguments))
            try:
                return answer.result(limit_s)
            except TimeoutError:
                self._overdue = answer, what
        raise TimeoutError(self._overdue[1])


def _serve(asked: _Asked) -> None:
    for answer, call, arguments in iter(asked.get, None):
        try:
            answer.set_result(call(*arguments))
        except Exception as error:  # noqa: BLE001  the thread that made the call raises it
            answer.set_exception(error)
        del answer, call, arguments  # otherwise these objects would live until the next call
