"""Reserves a TCP port at which the ranks of a trainer connect to each other."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    """Yield a free TCP port that stays reserved inside the block.

    The port is bound with SO_REUSEADDR, but nothing listens on it. According to socket(7), a trainer that sets the same
    option may bind the port and listen on it; torch's store sets it. Meanwhile the kernel gives the port to no process
    that requests an arbitrary free port.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))
        yield held.getsockname()[1]
