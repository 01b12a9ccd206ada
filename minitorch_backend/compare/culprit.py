"""``minitorch culprit``: which operators, and which of their calls, make the user's own check fail.

The script runs again and again, each time with a set of operators computed on the reference device in place of the
subject. Delta debugging finds the smallest set with which the check passes: first of operators, then, for each of
them, of calls. For one culprit the search halves, so the number of runs grows with the logarithm of the number of
operators. Every result is written down at once, and a search that was interrupted goes on where it stopped.
"""

import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import click
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from minitorch_backend.compare import generators
from minitorch_backend.compare.commands import ARGUMENTS, SCRIPT, device_option
from minitorch_backend.compare.judge import flat_tensors
from minitorch_backend.compare.mirror import Mirror, View, bytes_of, host_memory, window
from minitorch_backend.compare.operators import operator_of


class Transplant(TorchDispatchMode):
    """Computes chosen operators on the reference device; everything around them stays on the subject.

    `chosen(op, number)` decides for the number-th call (from 0) of an operator. `calls` counts them.
    """

    supports_higher_order_operators = True  # they run as they are

    def __init__(self, subject: str, reference: str, chosen: Callable[[str, int], bool]) -> None:
        super().__init__()
        self.subject, self.reference, self.chosen = torch.device(subject), torch.device(reference), chosen
        self.mirror = Mirror(self.subject, self.reference)
        self.calls: Counter = Counter()
        self.same_generators = generators.alike(self.subject, self.reference)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        op = operator_of(func)
        if op is None or op.ignored or op.is_view or op.uninitialised or not self.involves(args, kwargs):
            return func(*args, **kwargs)
        number = self.calls[op.full_name]
        self.calls[op.full_name] += 1
        if not self.chosen(op.full_name, number):
            return func(*args, **kwargs)
        return self.transplant(op, args, kwargs)

    def involves(self, args: Any, kwargs: dict) -> bool:
        leaves = [t for a in (*args, *kwargs.values()) for t in flat_tensors(a)]
        if any(isinstance(t, Tensor) and t.device.type == self.subject.type for t in leaves):
            return all(t.layout is torch.strided for t in leaves if isinstance(t, Tensor))
        device = kwargs.get("device")
        return device is not None and torch.device(device).type == self.subject.type

    def transplant(self, op: Any, args: Any, kwargs: dict) -> Any:
        view = View(self.mirror, lambda key, storage: self.mirror.storage(storage, copy=True))
        a, k = view.call(args, kwargs)
        if op.draws(args, kwargs) and self.same_generators:
            state = generators.get(self.subject, args, kwargs)
            with generators.seeded(self.reference, state, a, k) as (aa, kk):
                result = op.reference(*aa, **kk)
                given = generators.given(aa, kk)
                after = given.get_state() if given is not None else generators.default_state(self.reference)
            generators.put(self.subject, after, args, kwargs)
        else:
            result = op.reference(*a, **k)
        written = [kwargs[n] if isinstance(n, str) else args[n] for n in op.written(args, kwargs)]
        for t in [t for value in written for t in flat_tensors(value) if isinstance(t, Tensor)]:
            storage = t.untyped_storage()
            if storage._cdata in view.storages:
                source = bytes_of(view.storages[storage._cdata], self.reference)
                bytes_of(storage, self.subject).copy_(source)
        return self.back(result, args, kwargs, a, k)

    def back(self, result: Any, args: Any, kwargs: dict, a: list, k: dict) -> Any:
        """Results as tensors of the subject; a written argument stands for itself."""
        theirs = [t for v in (*a, *k.values()) for t in flat_tensors(v)]
        mine = [t for v in (*args, *kwargs.values()) for t in flat_tensors(v)]

        def one(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return type(value)(one(v) for v in value)
            if not isinstance(value, Tensor):
                return value
            for t, original in zip(theirs, mine, strict=True):
                if value is t:
                    return original
            target = torch.device(kwargs["device"]) if kwargs.get("device") is not None else self.subject
            if target.type == self.reference.type and target.type != self.subject.type:
                return value
            storage = bytes_of(value.untyped_storage(), value.device).to(self.subject).untyped_storage()
            return window(storage, value, self.subject)

        return one(result)


END = "end"  # the key of the line that ends a search


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:24]


def state_of(script: pathlib.Path) -> str:
    """Changes with the script, with the modules beside it, and with minitorch's library."""
    texts = [p.read_text() for p in sorted({script.resolve(), *script.resolve().parent.glob("*.py")})]
    library = sys.modules.get("minitorch_backend._C")
    built = os.stat(library.__file__).st_mtime if library is not None and library.__file__ else 0
    return digest([texts, built])


# One run


@dataclass
class Outcome:
    """What a run with some operators transplanted came to."""

    passed: bool
    calls: dict[str, int] = field(default_factory=dict)
    error: str = ""


def run_once(job: dict[str, Any]) -> Outcome:
    """Run the script in this process and apply the metric."""
    import runpy

    ops, picked = set(job["ops"]), {op: set(numbers) for op, numbers in job["calls"].items()}
    everything = job["everything"]
    mode = Transplant(
        job["subject"], job["reference"],
        lambda op, number: everything or op in ops or number in picked.get(op, ()),
    )  # fmt: skip
    sys.argv = [job["script"], *job["arguments"]]
    sys.path.insert(0, str(pathlib.Path(job["script"]).resolve().parent))
    try:
        with torch.compiler.set_stance("force_eager"), mode:
            namespace = runpy.run_path(job["script"], run_name="__main__")
        metric = find_metric(job["metric"], namespace)
        return Outcome(bool(metric(namespace) if takes_argument(metric) else metric()), dict(mode.calls))
    except (Exception, SystemExit) as error:
        if isinstance(error, LookupError) and str(error).startswith("metric "):
            return Outcome(False, dict(mode.calls), str(error))
        return Outcome(False, dict(mode.calls), f"{type(error).__name__}: {error}")


def find_metric(name: str, namespace: dict[str, Any]) -> Callable:
    """`function` of the script, or `module:function`."""
    import importlib

    module, colon, function = name.rpartition(":")
    found = getattr(importlib.import_module(module), function, None) if colon else namespace.get(name)
    if not callable(found):
        raise LookupError(f"metric {name!r} is no function of {'module ' + module if colon else 'the script'}")
    return found


def takes_argument(function: Callable) -> bool:
    import inspect

    return bool(inspect.signature(function).parameters)


class Runner:
    """Runs of the script in processes of their own, each result written to a journal.

    A search that came to its end is not gone on with: what the script or the device does may have been mended since.
    """

    def __init__(self, job: dict[str, Any], journal: pathlib.Path) -> None:
        self.job, self.journal = job, journal
        self.search = digest(job)
        self.results: dict[str, dict[str, Any]] = {}
        self.runs = 0
        self.interrupted = False
        for line in journal.read_text().splitlines() if journal.exists() else ():
            try:
                entry = json.loads(line)
            except ValueError:  # cut off by the end of a process
                continue
            if entry["search"] == self.search:
                if entry["key"] == END:
                    self.results.clear()
                else:
                    self.results[entry["key"]] = entry

    def put(self, entry: dict[str, Any]) -> None:
        self.journal.parent.mkdir(parents=True, exist_ok=True)
        with self.journal.open("a") as file:
            file.write(json.dumps({"search": self.search, **entry}) + "\n")

    def run(
        self, ops: Sequence[str] = (), calls: dict[str, list[int]] | None = None, everything: bool = False
    ) -> Outcome:
        plan = {"ops": sorted(ops), "calls": calls or {}, "everything": everything}
        key = digest([plan, self.job])
        known = self.results.get(key)
        if known is None:
            self.runs += 1
            outcome = self.execute({**self.job, **plan})
            if self.interrupted:  # the run had the interrupt, too, and its outcome says nothing
                raise KeyboardInterrupt
            known = {"key": key, "passed": outcome.passed, "calls": outcome.calls, "error": outcome.error}
            self.results[key] = known
            self.put(known)
        return Outcome(known["passed"], known["calls"], known["error"])

    def interrupt(self, *arguments: Any) -> None:
        """The handler of an interrupt. It is remembered: Python drops exceptions that come in the middle of a fork."""
        self.interrupted = True
        raise KeyboardInterrupt

    def execute(self, job: dict[str, Any]) -> Outcome:
        """One run in a process of its own: forked where no GPU is involved, which saves loading torch again."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "job")
            path.write_text(json.dumps(job))
            if all(host_memory(torch.device(job[side])) for side in ("subject", "reference")):
                status = forked(path)
            else:
                command = [sys.executable, "-m", "minitorch_backend.compare.culprit", str(path)]
                with open(path.with_name("errors"), "w") as errors:
                    status = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=errors).returncode
            answer = path.with_name("answer")
            if status or not answer.exists():
                lines = path.with_name("errors").read_text().strip().splitlines()
                return Outcome(False, {}, lines[-1] if lines else f"the process ended with status {status}")
            return Outcome(**json.loads(answer.read_text()))


def answer_job(path: pathlib.Path) -> None:
    path.with_name("answer").write_text(json.dumps(vars(run_once(json.loads(path.read_text())))))


def forked(path: pathlib.Path) -> int:
    """Run a job in a forked process, its output put away; the exit status, negative for a signal."""
    import torch._dynamo  # noqa: F401  dispatch modes load it; here once, not in each child

    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(os.open(path.with_name("errors"), os.O_WRONLY | os.O_CREAT), 2)
            answer_job(path)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# The search


def smallest(items: Sequence[Any], passes: Callable[[list], bool]) -> list:
    """A smallest subset of `items` that passes (Zeller and Hildebrandt's ddmin, 2002); all of `items` must pass.

    One culprit among n takes about 2 log2 n tests.
    """
    current, parts = list(items), 2
    while len(current) > 1:
        size = -(-len(current) // parts)
        chunks = [current[i : i + size] for i in range(0, len(current), size)]
        for chunk in chunks:
            if passes(chunk):
                current, parts = chunk, 2
                break
        else:
            for i in range(len(chunks)) if len(chunks) > 2 else ():
                rest = [x for j, c in enumerate(chunks) if j != i for x in c]
                if passes(rest):
                    current, parts = rest, max(parts - 1, 2)
                    break
            else:
                if parts >= len(current):
                    return current
                parts = min(len(current), parts * 2)
    return current


@dataclass
class Verdict:
    """What a search found. `calls` are numbers of calls of an operator, from 0."""

    status: str  # found, passes at once, fails all-native
    ops: list[str] = field(default_factory=list)
    calls: dict[str, list[int]] = field(default_factory=dict)
    runs: int = 0
    detail: str = ""


def search(runner: Any, tell: Callable[[str], None] = lambda text: None) -> Verdict:
    """Find the culprits with a runner (see :class:`Runner`)."""
    plain = runner.run()
    if plain.error.startswith("metric "):
        return Verdict("no metric", runs=runner.runs, detail=plain.error)
    if plain.passed:
        return Verdict("passes at once", runs=runner.runs)
    native = runner.run(everything=True)
    if not native.passed:
        return Verdict("fails all-native", runs=runner.runs, detail=native.error)
    names = sorted(set(plain.calls) | set(native.calls))
    tell(f"{len(names)} operators")
    ops = smallest(names, lambda chosen: runner.run(chosen).passed)
    tell(f"{', '.join(ops)}: which calls")
    calls: dict[str, list[int]] = {}
    for op in ops:
        others = [o for o in ops if o != op and o not in calls]
        count = max(native.calls.get(op, 0), plain.calls.get(op, 0))

        def passes(numbers: list[int], op: str = op, others: list[str] = others) -> bool:
            return runner.run(others, {**calls, op: numbers}).passed

        calls[op] = smallest(range(count), passes)
    return Verdict("found", ops, calls, runner.runs)


MOST_NUMBERS = 12


@click.command(context_settings={**ARGUMENTS, "allow_interspersed_args": True})
@click.option("--metric", required=True, help="The check: a function of the script, or module:function. True is good.")
@device_option("--subject", "minitorch", "Device that the script runs on.")
@device_option("--reference", "cpu", "Device to compute culprits on.")
@click.option("--journal", default=".minitorch-culprit.jsonl", show_default=True, type=click.Path(dir_okay=False))
@click.argument("script", type=SCRIPT)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def culprit(metric: str, subject: str, reference: str, journal: str, script: str, arguments: tuple[str, ...]) -> None:
    """Find the smallest set of operators of SCRIPT, then of calls, that the reference must run for a check to pass.

    The metric is called when the script has ended, with its globals if it takes an argument. A search that was
    interrupted goes on from the journal, unless SCRIPT, a module beside it or the device has changed. These options may
    stand before or behind SCRIPT; what follows a -- is the script's alone. Exit status: 0 found, 1 nothing to find.
    """
    job = {
        "script": script, "arguments": list(arguments), "metric": metric, "subject": subject, "reference": reference,
        "state": state_of(pathlib.Path(script)),
    }  # fmt: skip
    runner = Runner(job, pathlib.Path(journal))
    known = len(runner.results)
    if known:
        click.echo(f"{known} runs are in {journal} already")
    handler = signal.signal(signal.SIGINT, runner.interrupt)
    try:
        found = search(runner, click.echo)
        runner.put({"key": END})
    except KeyboardInterrupt:
        click.echo(f"interrupted after {runner.runs} runs; the same command goes on from {journal}")
        sys.exit(130)
    finally:
        signal.signal(signal.SIGINT, handler)
    if found.status == "passes at once":
        click.echo(f"{metric} is true on {subject} as it is: there is nothing to find.")
    elif found.status == "fails all-native":
        reason = f" ({found.detail})" if found.detail else ""
        click.echo(f"{metric} is false even with every operator on {reference}{reason}: {subject} is not the reason.")
    elif found.status == "no metric":
        raise click.UsageError(found.detail)
    else:
        for op in found.ops:
            numbers = found.calls[op]
            shown = ", ".join(map(str, numbers[:MOST_NUMBERS])) + (" …" if len(numbers) > MOST_NUMBERS else "")
            click.echo(f"{op}: call {shown}" if len(numbers) == 1 else f"{op}: {len(numbers)} calls: {shown}")
        click.echo(f"{found.runs} runs")
    sys.exit(0 if found.status == "found" else 1)


if __name__ == "__main__":
    answer_job(pathlib.Path(sys.argv[1]))
