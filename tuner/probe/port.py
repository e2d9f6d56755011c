"""A TCP port for the ranks to meet at."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    """Give a free port of the loopback interface that stays reserved inside the block.

    The port is bound, not listened on, with SO_REUSEADDR: by socket(7) a trainer that sets the same option, as torch's
    store does, may bind and listen on it, while the kernel hands it to nobody who asks for any free port.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))
        yield held.getsockname()[1]
