"""A comparison around a piece of code: ``session()`` as a context manager, ``run(fn)`` for a function."""

import contextlib
import os
import pathlib
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch

from minitorch_backend.compare.heap import reused_blocks
from minitorch_backend.compare.options import Options
from minitorch_backend.compare.recorder import Recorder
from minitorch_backend.compare.store import Finding, Store


class Report:
    """What a comparison found. Readable while it runs; complete when the session has ended."""

    def __init__(self, options: Options, recorder: Recorder) -> None:
        self.options, self.recorder = options, recorder
        self.store: Store = recorder.store
        self.ended = "running"  # then: finished, or what happened
        self.error: str | None = None
        self.seconds = 0.0
        self.result: Any = None
        self.command: list[str] = []

    @property
    def findings(self) -> list[Finding]:
        """In the order in which they began."""
        return self.store.sorted_findings()

    @property
    def culprit(self) -> Finding | None:
        """The first call whose local error stands out."""
        return self.findings[0] if self.findings else None

    @property
    def clean(self) -> bool:
        """Whether something was compared and nothing was found."""
        return self.store.compared > 0 and not self.store.findings

    def data(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        from minitorch_backend.compare.report import report_data

        return report_data(self)

    def print(self) -> None:
        """Print tables of findings and operators."""
        from minitorch_backend.compare.terminal import print_report

        print_report(self.data())

    def write(self, folder: "str | os.PathLike[str]") -> pathlib.Path:
        """Write report.html and report.jsonl; returns the folder. Replay files go where ``session`` says."""
        from minitorch_backend.compare.report import write_report

        return write_report(self, pathlib.Path(folder))


class _Surroundings:
    """Watches what a program does that a comparison should mention: other modes, compilation, forks, flags."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.undo: list[Callable[[], None]] = []
        self.flags = flags()

    def install(self) -> None:
        store = self.recorder.store
        mode = torch.utils._python_dispatch.TorchDispatchMode
        enter, recorder = mode.__enter__, self.recorder

        def noting_enter(this: Any) -> Any:
            if this is not recorder and not type(this).__module__.startswith("torch."):
                store.note(
                    f"the program has a dispatch mode of its own, {type(this).__name__}: what it makes of a call is "
                    "compared, not the call"
                )
            return enter(this)

        mode.__enter__ = noting_enter
        compile = torch.compile

        def noting_compile(*args: Any, **kwargs: Any) -> Any:
            store.note("torch.compile: compiled functions run operator by operator while they are compared")
            return compile(*args, **kwargs)

        torch.compile = noting_compile
        ctc_loss = torch.ctc_loss

        def ctc_loss_of_numbers(log_probs: Any, targets: Any, *lengths: Any, **kwargs: Any) -> Any:
            """Lengths on the host as numbers, as torch takes them itself where no dispatch mode is on.

            Under a mode it divides the losses by the tensor of lengths as it is, which fails on any other device.
            """
            if log_probs.device.type != "cpu" and all(on_host(t) for t in lengths[:2]):
                lengths = (*(t.tolist() for t in lengths[:2]), *lengths[2:])
            return ctc_loss(log_probs, targets, *lengths, **kwargs)

        torch.ctc_loss = ctc_loss_of_numbers

        def restore() -> None:
            mode.__enter__ = enter
            torch.compile = compile
            torch.ctc_loss = ctc_loss

        self.undo.append(restore)
        _active.append(recorder)

    def remove(self) -> None:
        for undo in self.undo:
            undo()
        _active.remove(self.recorder)
        for name, value in flags().items():
            if value != self.flags[name]:
                self.recorder.store.note(f"the program changed {name} from {self.flags[name]} to {value}")


def on_host(value: Any) -> bool:
    return type(value) is torch.Tensor and value.device.type == "cpu"


def flags() -> dict[str, Any]:
    """Settings of torch that results depend on."""
    return {
        "default dtype": str(torch.get_default_dtype()),
        "default device": str(torch.get_default_device()),
        "threads": torch.get_num_threads(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "flush denormal": bool(torch.tensor(1e-310, dtype=torch.float64, device="cpu").mul(1).item() == 0),
    }


_active: list[Recorder] = []


def _after_fork() -> None:
    for recorder in _active:
        recorder.active = False


def _before_fork() -> None:
    for recorder in _active:
        if recorder.active:
            recorder.store.note("the program forked; calls in child processes are not compared")


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


@contextlib.contextmanager
def session(
    options: Options | None = None, *, replay: "str | os.PathLike[str] | None" = None, **settings: Any
) -> Iterator[Report]:
    """Compare everything that runs inside on the subject device; the settings are those of :class:`Options`.

    With `replay`, a folder, each finding's replay file is written there as soon as it is made. An exception passes
    through; the report says what it was.
    """
    options = options or Options(**settings)
    writer = None
    if replay is not None:
        from minitorch_backend.compare.replay import Writer

        writer = Writer(pathlib.Path(replay), options)
    recorder = Recorder(options, writer.write if writer else None)
    report = Report(options, recorder)
    surroundings = _Surroundings(recorder)
    surroundings.install()
    start = time.perf_counter()
    try:
        with reused_blocks(), torch.compiler.set_stance("force_eager"), recorder:
            yield report
        report.ended = "finished"
    except BaseException as error:
        report.ended = describe_end(error)
        report.error = "".join(traceback.format_exception(error))
        raise
    finally:
        report.seconds = time.perf_counter() - start
        surroundings.remove()


def describe_end(error: BaseException) -> str:
    """How a program ended, in a line."""
    if isinstance(error, SystemExit):
        return f"the program called sys.exit({error.code!r})"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    text = str(error).splitlines()[0] if str(error) else ""
    return f"the program raised {type(error).__name__}: {text}"


def run(function: Callable[[], Any], options: Options | None = None, **settings: Any) -> Report:
    """Compare what `function()` does. Its result, or the exception in words, is in the report."""
    comparison = session(options, **settings)
    report = comparison.__enter__()
    try:
        report.result = function()
    except Exception as error:
        with contextlib.suppress(Exception):
            comparison.__exit__(type(error), error, error.__traceback__)
    else:
        comparison.__exit__(None, None, None)
    return report
