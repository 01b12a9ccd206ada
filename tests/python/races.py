"""What the tests of races share."""

import functools
import pathlib
import signal
import subprocess
import time

from minitorch_backend.bench.race import Budget

SHORT = Budget(block=1e-4, rounds=3, target=1.0, seconds=0.0, least=3, warm=1e-3, visits=1, apart=0.0)


def interrupt_behind(case: str, command: list[str], out: pathlib.Path, start: float, end: float) -> tuple[int, str]:
    """Interrupts a race once its result file has a case: exit status and output.

    ``start``, ``end``: seconds that it may take to get there, and to end then.
    """
    # What runs in the background of a shell ignores interrupts, and so would all that it starts.
    hear = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=hear)
    deadline = time.monotonic() + start
    while case not in out.read_text() and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(1)
    run.send_signal(signal.SIGINT)
    text, _ = run.communicate(timeout=end)
    return run.returncode, text
