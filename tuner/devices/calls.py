"""Calls that may never return, made in a thread of their own so that nobody waits for ever."""

import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

_Answer = TypeVar("_Answer")
_Asked = SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None]


class Calls:
    """Makes one call after another in a thread that ends with this object, or is left behind where a call hangs.

    Such a call holds up those that follow: they are given up at once, until it has returned.
    """

    def __init__(self, name: str) -> None:
        self._asked: _Asked = SimpleQueue()
        self._overdue: tuple[Future[Any], str] | None = None
        Thread(target=_serve, args=(self._asked,), name=name, daemon=True).start()
        weakref.finalize(self, self._asked.put, None)

    def make(self, what: str, limit_s: float, call: Callable[..., _Answer], *arguments: Any) -> _Answer:
        """Give the call's answer, or raise what it raises.

        Raises TimeoutError naming what hangs, where this takes longer than `limit_s` or an earlier call still does.
        """
        if self._overdue is None or self._overdue[0].done():
            answer: Future[_Answer] = Future()
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
        except Exception as error:  # noqa: BLE001  whoever asked raises it
            answer.set_exception(error)
        del answer, call, arguments  # what was asked about need not live until the next call
