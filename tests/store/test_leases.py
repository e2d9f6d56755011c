import os
import platform
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest

from tuner.store.leases import STALE_S, Lease, this_host


def test_a_lease_of_this_process_is_held() -> None:
    lease = Lease.mine()
    assert (lease.host, lease.pid) == (this_host(), os.getpid())
    assert lease.held()


def test_a_lease_survives_writing_and_reading() -> None:
    lease = Lease.mine()
    assert Lease.read(lease.write()) == lease


@pytest.mark.parametrize(
    "attribute",
    [
        *(None, "me", {}, {"host": "here"}),
        {"host": "here", "pid": 1, "started": 0.0, "beat": 0.0, "more": 1},
        {"host": "here", "pid": "one", "started": 0.0, "beat": 0.0},
    ],
)
def test_an_attribute_that_is_no_lease_is_read_as_none(attribute: object) -> None:
    assert Lease.read(attribute) is None


def test_the_lease_of_a_process_that_has_ended_is_dropped() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        lease = replace(Lease.mine(), pid=child.pid, started=psutil.Process(child.pid).create_time())
        assert lease.held()
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
        assert not lease.held()
    assert not lease.held()


def test_a_pid_that_another_process_has_got_does_not_keep_the_lease() -> None:
    lease = Lease.mine()
    assert not replace(lease, started=lease.started - 60).held()


@pytest.mark.parametrize(("silent_s", "held"), [(0.0, True), (STALE_S / 2, True), (STALE_S + 60, False)])
def test_another_host_s_lease_is_valid_while_it_shows_signs_of_life(silent_s: float, held: bool) -> None:
    assert Lease(host="elsewhere", pid=1, started=0.0, beat=time.time() - silent_s).held() is held


@pytest.mark.parametrize(("silent_s", "held"), [(0.0, True), (STALE_S + 60, False)])
def test_a_container_of_the_same_name_is_another_host(silent_s: float, held: bool) -> None:
    lease = Lease(host=f"{platform.node()} pid:[1]", pid=os.getpid(), started=0.0, beat=time.time() - silent_s)
    assert lease.held() is held


def test_a_lease_of_an_older_version_is_identified_by_its_pid() -> None:
    lease = replace(Lease.mine(), host=platform.node())
    assert lease.held()
    assert not replace(lease, started=lease.started - 60).held()
