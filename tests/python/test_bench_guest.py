"""A side of a race in a process of its own."""

import os
import signal
import textwrap

import pytest
import torch

from minitorch_backend import _C
from minitorch_backend.bench import case, limits, runner
from minitorch_backend.bench.guest import Guest, GuestError
from minitorch_backend.bench.runner import OURS, Runner, Side
from tests.python.races import SHORT

DEVICE = torch.device("cuda" if _C.backend_name() == "cuda" and torch.cuda.is_available() else "cpu")
CASES = """
    import os
    import torch
    from minitorch_backend.bench.case import Case, forward, training

    BACKENDS = ("cpu", "cuda")

    def names_devices(s):
        raise ValueError(f"registered here: {torch._C._get_privateuse1_backend_name()}")

    def out_of_memory(s):
        raise torch.OutOfMemoryError("none left")

    def wrong(s):
        x = s.normal(64)
        return lambda: x if s.device.type == "minitorch" else -x

    def dies(s):
        if s.device.type != "minitorch":
            os._exit(3)
        return lambda: None

    CASES = [
        Case("exp", lambda s: forward(torch.exp, s.normal(1 << 21)), backends=BACKENDS),
        Case("backward", lambda s: training(s, torch.sin, s.normal(64, grad=True)), backends=BACKENDS),
        Case("names devices", names_devices, backends=BACKENDS),
        Case("out of memory", out_of_memory, backends=BACKENDS),
        Case("wrong", wrong, backends=BACKENDS),
        Case("dies", dies, backends=BACKENDS),
    ]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("guest") / "apart" / "cases"
    made.mkdir(parents=True)
    (made / "tiny.py").write_text(textwrap.dedent(CASES))
    return made


@pytest.fixture(scope="module")
def race(folder):
    sides = [Side("native", DEVICE, guest=Guest(DEVICE, folder)), OURS]
    made = Runner(sides, limits.Limits(), SHORT)
    cases = {c.name: c for c in case.load(folder)}
    yield lambda name: made.run(cases[name])
    made.close()


@pytest.mark.parametrize("name", ["exp", "backward"])
def test_a_race_with_a_guest(race, name):
    result = race(name)
    assert result.status == "ok", result.message
    assert result.ratio > 0 and result.seconds.keys() == {"native", "minitorch"}
    if name == "exp":
        assert result.peak["native"] >= 7 * 2**20 and 0 < result.errors["native"] < 1e-6


def test_the_device_is_not_registered_there(folder):
    guest = Guest(DEVICE, folder)
    try:
        with pytest.raises(GuestError, match="ValueError: registered here: privateuseone"):
            guest.ask("setup", "tiny/names devices")
    finally:
        guest.close()


def test_what_fails_there_is_the_result(race):
    assert race("out of memory").status == "out of memory"
    assert race("wrong").status == "wrong"
    assert race("exp").status == "ok"  # and the next case runs


def test_a_guest_that_dies_is_replaced(race):
    result = race("dies")
    assert result.status == "failed" and "native's process ended" in result.message
    assert race("exp").status == "ok"


def test_a_guest_that_was_killed(folder):
    guest = Guest(DEVICE, folder)
    guest.ask("clear")
    os.kill(guest.process.pid, signal.SIGKILL)
    with pytest.raises(GuestError, match="ended in the middle"):
        guest.ask("clear")
    assert guest.process is None


def test_cases_that_do_not_load_there_say_why(tmp_path):
    (tmp_path / "own.py").write_text("from minitorch_backend import device_name\nCASES = []\n")
    guest = Guest(DEVICE, tmp_path)
    try:
        for _ in range(2):
            with pytest.raises(GuestError, match="ImportError: cannot import name 'device_name'"):
                guest.ask("setup", "own/any")
    finally:
        guest.close()


def test_native_cuda_is_a_guest(monkeypatch):
    assert runner.native("cpu").guest is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    side = runner.native("cuda")
    assert side.name == "cuda" and isinstance(side.guest, Guest) and side.guest.process is None
    assert runner.compiled("cuda").guest.compiled
