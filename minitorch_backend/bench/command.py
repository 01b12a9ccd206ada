"""``minitorch bench``: the command."""

import contextlib
import fcntl
import gc
import importlib.util
import math
import pathlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import click
import torch
from click.shell_completion import CompletionItem
from rich.console import Console
from rich.text import Text

from minitorch_backend import _C, terminal
from minitorch_backend.bench import case as cases_module
from minitorch_backend.bench import heap, limits, machine, modes, placement, race, report, results, supervisor
from minitorch_backend.bench.case import Case
from minitorch_backend.bench.results import Result, Run
from minitorch_backend.bench.runner import OURS, Runner, Side, compiled, native
from minitorch_backend.bench.suite import SHIFT, Suite
from minitorch_backend.cli import INTERRUPTED
from minitorch_backend.kernels import compiler, files
from minitorch_backend.kernels.errors import CompileError

NOT_REACHED = "No case that was tried calls the kernel; name some with --only."
NOTHING_COMPARED = "the older run has no case that could be compared"
APART = "the processors were near each other in one of the runs only"
RIVALS = ("native", "cpu", "cuda", "compile", "self")
MOST_THREADS = 4096  # of which no machine has more to compute with
LIMITS = "-- measuring the limits of this machine"  # what a run is at then, as the supervisor is told


class Seconds(click.FloatRange):
    """A time that may be given. NaN, which no range leaves out, is none."""

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return found


def check_writable(path: pathlib.Path) -> None:
    """Raises ClickException when the results could not be written, before anything takes time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        there = path.exists()
        if there and not path.is_file():
            raise click.ClickException(f"--json {path} is no file, and results are written anew at the end")
        path.open("a").close()
        if not there:
            path.unlink()
    except OSError as error:
        raise click.ClickException(f"--json {path}: {error}") from None


@contextlib.contextmanager
def alone(path: pathlib.Path) -> Iterator[None]:
    """Inside, no other run writes these results. Raises ClickException while one does."""
    lock = path.with_name(path.name + ".lock")
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise click.ClickException(f"another run writes {path} now: name another file with --json") from None
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def check_plots(folder: pathlib.Path) -> None:
    """Raises ClickException when there could be no pictures."""
    if importlib.util.find_spec("matplotlib") is None:
        raise click.ClickException("--plots needs matplotlib: pip install matplotlib")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"--plots {folder}: {error}") from None


def complete_families(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of families, for the shell."""
    files = cases_module.default_folder().glob("[!_]*.py")
    return [CompletionItem(f.stem) for f in sorted(files) if f.stem.startswith(incomplete)]


def complete_rivals(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    items = [CompletionItem(name) for name in RIVALS if name.startswith(incomplete)]
    return items or [CompletionItem(incomplete, type="file")]


def read_run(path: pathlib.Path) -> Run:
    try:
        return results.read(path)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None


def compile_lacks(backend: str) -> str:
    """What torch.compile would miss at its first call."""
    if backend == "cuda":
        return "" if importlib.util.find_spec("triton") else "Triton, which is not installed"
    try:
        compiler.cxx()
    except CompileError as error:
        return f"a C++ compiler ({error})"
    return ""


def find_sides(against: str, backend: str, folder: pathlib.Path | None = None) -> list[Side]:
    """The competitors for ``--against``, the rival first."""
    if against == "native":
        return [native(backend, folder), OURS]
    if against == "self":
        rival, again = native(backend, folder), native(backend, folder)
        return [rival, replace(again, name=f"{rival.name} again")]
    if against == "compile":
        if lacking := compile_lacks(backend):
            raise click.ClickException(f"--against compile: torch.compile needs {lacking}")
        return [compiled(backend, folder), OURS]
    if against == "cuda" and not torch.cuda.is_available():
        raise click.ClickException("--against cuda: this torch sees no GPU (torch.cuda.is_available() is False)")
    if against == "cuda":
        return [native("cuda", folder), OURS]
    if against == "cpu":
        return [native("cpu"), OURS]
    known = f"known are {', '.join(RIVALS)}, a result file (.jsonl) and a kernel file (.py, .cpp, .cu)"
    raise click.BadParameter(f"{against!r} is not a rival or a file; {cases_module.near(against, RIVALS)}. {known}")


def choose_cases(
    folder: pathlib.Path | None, only: str, backend: str, quick: bool = False, floors: bool = False
) -> list[Case]:
    try:
        return cases_module.choose(cases_module.load(folder), only, backend, quick, floors)
    except (LookupError, FileNotFoundError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    except re.error as error:
        raise bad_pattern(only, error) from None


def bad_pattern(only: str, error: re.error) -> click.BadParameter:
    return click.BadParameter(f"{only!r} is not a regular expression: {error}", param_hint="--only")


def list_cases(chosen: list[Case], console: Console) -> None:
    for case in chosen:
        work = ", ".join(
            text
            for text in (
                report.size(case.bytes) if case.bytes else "",
                report.rate(case.flops, "FLOP") if case.flops else "",
                f"floor {case.floor:.2f}" if case.floor else "",
                "quick" if case.quick else "",
            )
            if text
        )
        console.print(Text.assemble(f"{case.full_name}  ", (work, "dim")), soft_wrap=True)
    console.print(report.cases(len(chosen)))


def measure_limits(backend: str, console: Console, note: Callable[[str], None]) -> limits.Limits:
    note(LIMITS)
    with report.progress(console) as bar:
        task = bar.add_task("limits of the machine", total=limits.steps(backend))
        found = limits.measure(backend, lambda: bar.advance(task))
    note("")
    return found


def run_cases(suite: Suite, console: Console) -> list[Result]:
    with report.progress(console) as bar:
        task = bar.add_task("", total=suite.visits)
        suite.tell = lambda text, done: bar.update(task, description=text, completed=done, total=suite.visits)
        try:
            suite.run()
        except KeyboardInterrupt:
            suite.interrupted = True
            console.print(f"interrupted: {suite.finished} of {len(suite.cases)} cases are done", style="yellow")
    return [result for result in suite.results.values() if result.timed or result.message]


def print_machine(facts: dict, console: Console) -> None:
    kept = [key for key in facts if facts[key] not in (None, "") and key not in ("memory", "system", "processors")]
    console.print(", ".join(f"{key} {facts[key]}" for key in kept), soft_wrap=True, style="dim")


def check_comparable(old: Run, new: Run, force: bool) -> str:
    """Why two runs should not be compared. Raises ClickException with it unless forced to."""
    reason = results.refuse(old, new)
    if reason and not force:
        raise click.ClickException(f"{reason}. --force compares them all the same")
    return reason


def check_common(old: Run, names: list[str]) -> None:
    """Raises ClickException where a comparison would have nothing to compare."""
    if not any(name in old.results and old.results[name].estimate for name in names):
        raise click.ClickException(f"{NOTHING_COMPARED}: it timed none of the {len(names)} cases that are chosen here")


def gate(done: list[Result], old: Run | None, new: Run, force: bool, console: Console) -> list[str]:
    """Everything that makes the exit status 1."""
    wrong = [r.name for r in done if r.status not in ("ok", "less accurate", "not reached")]
    problems = [f"failed: {', '.join(wrong)}"] if wrong else []
    if below := [r.name for r in done if r.below_floor]:
        problems.append(f"below their floor: {', '.join(below)}")
    if old is not None:
        if reason := check_comparable(old, new, force):
            console.print(f"compared although {reason}", style="yellow")
        changes = results.compare(old, new)
        terminal.show(console, report.changes_table(changes))
        if apart := [change.name for change in changes if change.verdict == "apart"]:
            console.print(f"{len(apart)} of {len(changes)} cases were not judged: {APART}", style="yellow")
        if all(change.verdict in ("new", "apart") for change in changes):
            problems.append(NOTHING_COMPARED)
        if worse := [change.name for change in changes if change.regression]:
            problems.append(f"slower than in the older run: {', '.join(worse)}")
    return problems


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--only", default="", metavar="REGEX", help="Cases whose name it is found in.", shell_complete=complete_families
)
@click.option("--quick", is_flag=True, help="A choice of cases, few rounds: a rough look in under three minutes.")
@click.option("--thorough", is_flag=True, help="More visits, at quiet times if there are any: for cases that vary.")
@click.option(
    "--floors", is_flag=True, help="Only cases that must reach a ratio; with --quick all of them in few rounds."
)
@click.option("--resume", is_flag=True, help="Keep what the --json file has, of this machine and commit; run the rest.")
@click.option(
    "--against", default="native", metavar="native|cpu|cuda|compile|self|FILE", show_default=True,
    help="The rival; self races native against itself. FILE: a result (.jsonl) or a kernel file (.py, .cpp, .cu).",
    shell_complete=complete_rivals,
)  # fmt: skip
@click.option("--kernel", type=click.Path(exists=True, dir_okay=False, path_type=pathlib.Path),
              help="A file with kernels of your own: diffed against native, then raced against both.")  # fmt: skip
@click.option(
    "--host", is_flag=True, help="What a call costs besides the kernel, split into dispatcher, binding, kernel."
)
@click.option("--list", "list_only", is_flag=True, help="List the cases, do not run them.")
@click.option("--compare", type=click.Path(exists=True, dir_okay=False, path_type=pathlib.Path),
              help="An older result file; exit status 1 when a case has become slower beyond noise.")  # fmt: skip
@click.option("--results", "given", type=click.Path(exists=True, dir_okay=False, path_type=pathlib.Path),
              help="Measure nothing: take this result file (to compare, print or plot).")  # fmt: skip
@click.option("--force", is_flag=True, help="Compare results of different machines or versions too.")
@click.option("--check", is_flag=True, help="Exit status 1 also when a floor is missed or a case fails.")
@click.option("--threads", type=click.IntRange(1, MOST_THREADS), help="CPU threads (default: torch's own choice).")
@click.option("--malloc", type=click.Choice(heap.POLICIES), default="pinned", show_default=True,
              help="The C library's heap, native's memory: in one fixed state, or as it is.")  # fmt: skip
@click.option("--wait", type=Seconds(), default=30.0, show_default=True, metavar="SECONDS",
              help="How long to wait at the end for the processors to be near each other, at least.")  # fmt: skip
@click.option("--time-limit", type=Seconds(), default=300.0, show_default=True, metavar="SECONDS",
              help="A case that takes longer is stopped. 0: no limit, and all in this process.")  # fmt: skip
@click.option("--no-memory", is_flag=True, help="Do not measure peak memory.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=pathlib.Path),
              help="Where the results go, as JSON lines (default: out/bench.jsonl or kernel.jsonl).")  # fmt: skip
@click.option("--plots", type=click.Path(file_okay=False, path_type=pathlib.Path), help="Folder for the pictures.")
@click.option("--cases", "folder", type=click.Path(file_okay=False, path_type=pathlib.Path),
              help="Folder with the cases (default: benchmarks/cases of the source tree).")  # fmt: skip
@click.pass_context
def bench(ctx: click.Context, **options: object) -> None:
    """Race minitorch against native torch: the same work on both, in turns, as a ratio with its interval.

    Above 1 minitorch is faster. A case is timed only after its result was compared with float64. Exit status 1: a case
    became slower than in --compare, or with --check a floor is missed or a case fails.
    """
    try:
        supervisor.hear_interrupts()
        code = Command(**options).run()
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        code = INTERRUPTED
    except click.ClickException as error:
        if not supervisor.is_child():
            raise
        error.show()
        code = error.exit_code
    supervisor.leave(code)
    ctx.exit(code)


class Command:
    """One call of ``minitorch bench``."""

    def __init__(self, **options: object) -> None:
        self.options = options
        self.__dict__.update(options)
        self.json_path = self.json_path or pathlib.Path("out") / ("kernel.jsonl" if self.kernel else "bench.jsonl")
        self.console = terminal.console()
        self.backend = _C.backend_name()

    def run(self) -> int:
        modes.refuse_what_does_nothing(bench.params, self.options)
        rival = pathlib.Path(self.against)
        if rival.suffix in (".jsonl", *files.SUFFIXES) and not rival.is_file():
            raise click.BadParameter(f"File {self.against!r} does not exist.", param_hint="--against")
        if self.plots:
            check_plots(self.plots)
        if self.threads:
            torch.set_num_threads(self.threads)
        if self.host:
            from minitorch_backend.bench import host

            return host.run(self.console)
        if self.given:
            return self.show(read_run(self.given))
        # Of a kernel's own cases --quick makes the visits short; it does not leave any out.
        chosen = choose_cases(self.folder, self.only, self.backend, self.quick and not self.kernel, self.floors)
        if self.list_only:
            list_cases(chosen, self.console)
            return 0
        for option, older in (("--compare", self.compare), ("--against", rival)):
            if older and self.json_path.resolve() == older.resolve():
                raise click.ClickException(
                    f"{option} {older} is where the results go: name another file for them with --json"
                )
        old = read_run(self.compare) if self.compare else None
        if supervisor.is_child():
            return self.measure(chosen, old)
        check_writable(self.json_path)
        with alone(self.json_path):
            return self.race(chosen, old)

    def race(self, chosen: list, old: Run | None) -> int:
        """The run of the process that a user has started, which leaves the work to others when there is a limit."""
        if self.own_file:
            from minitorch_backend.bench import kernel_race

            if not kernel_race.is_right(self.own_file, self.console, self.time_limit or math.inf):
                return 1
        if self.time_limit:
            given = supervisor.arguments(bench, self.options)
            return supervisor.supervise(given, self.json_path, self.time_limit, self.console)
        return self.measure(chosen, old)

    def show(self, run: Run) -> int:
        try:
            done = [r for r in run.results.values() if re.search(self.only, r.name)]
        except re.error as error:
            raise bad_pattern(self.only, error) from None
        if run.results and not done:
            close = cases_module.near(self.only, run.results)
            raise click.ClickException(f"no case of {self.given} matches {self.only!r}; {close}")
        print_machine(run.machine, self.console)
        return self.finish(done, run, read_run(self.compare) if self.compare else None)

    def measure(self, chosen: list[Case], old: Run | None) -> int:
        recorded, note = None, supervisor.note_taker()
        if self.own_file:
            from minitorch_backend.bench import kernel_race

            note(f"--{'kernel' if self.kernel else 'against'} {self.own_file}")  # it may hang, or end the process
            try:
                overrides = kernel_race.load(self.own_file)
            finally:
                note("")
            mine = kernel_race.side(self.own_file, overrides)
            sides = [native(self.backend, self.folder), OURS, mine] if self.kernel else [mine, OURS]
            chosen = kernel_race.choose(chosen, overrides, self.only)
        elif self.against.endswith(".jsonl"):
            recorded, sides = read_run(pathlib.Path(self.against)), find_sides("native", self.backend, self.folder)
        else:
            sides = find_sides(self.against, self.backend, self.folder)
        facts = machine.describe() | self.conditions(sides)
        if self.own_file:
            facts["kernel"] = kernel_race.identity(self.own_file)
        for other in (old, recorded):  # before anything takes time
            if other is not None:
                check_comparable(other, Run(facts, limits.Limits(), {}), self.force)
                check_common(other, [case.full_name for case in chosen])
        carried = supervisor.carried()
        begun = time.monotonic()
        if not carried:
            print_machine(facts, self.console)
        gc.collect()
        gc.freeze()  # what is there already is not looked at again after every case
        before = self.earlier(facts)
        facts = before.machine if before and carried else facts
        lasting = carried or {"begun": begun, "limits again": self.backend == "cpu" and not (self.quick or before)}
        found = before.limits if before else measure_limits(self.backend, self.console, note)
        if not carried:
            terminal.show(self.console, report.limits_table(found))
        watch = placement.find(self.backend)
        runner = Runner(
            sides, found, race.budget_for(self.backend, self.quick, self.thorough), not self.no_memory, watch
        )
        kept = before.results if before else {}
        try:
            writer = results.Writer(self.json_path, facts, found, kept.values())
        except OSError as error:
            raise click.ClickException(f"--json {self.json_path}: {error}") from None
        suite = Suite(runner, chosen, dict(kept), self.wait, store=writer.add, note=note)
        if supervisor.is_child():
            suite.shift = SHIFT
        if carried:
            suite.take(carried["suite"])
        suite.begin()
        supervisor.keep(lasting | {"suite": suite.carry()})  # for the next process, should this one not end well
        done = run_cases(suite, self.console)
        if suite.unfinished and not suite.interrupted and not writer.problem:
            runner.close()
            writer.close()
            supervisor.keep(lasting | {"suite": suite.carry()})
            return supervisor.UNFINISHED
        if lasting["limits again"] and not suite.interrupted:  # neighbours may have gone since
            found = found.raised(measure_limits(self.backend, self.console, note))
            suite.take_limits(found)
            writer.take_limits(found)
        runner.close()
        writer.close(watch.summary() if watch else None)
        if writer.problem:
            self.console.print(f"{self.json_path} is not whole: {writer.problem}", style="red")
        run = Run(facts, found, {r.name: r for r in done})
        code = 0 if suite.interrupted and not done else self.finish(done, run, old or recorded)
        self.console.print(f"{time.monotonic() - lasting['begun']:.0f} s; results: {self.json_path}", style="dim")
        return code or (INTERRUPTED if suite.interrupted else 1 if writer.problem else 0)

    @property
    def own_file(self) -> pathlib.Path | None:
        """The file with kernels that race, as a third side or as the rival."""
        rival = pathlib.Path(self.against)
        return self.kernel or (rival if rival.suffix in files.SUFFIXES else None)

    def conditions(self, sides: list[Side]) -> dict:
        """What a result file says besides machine and versions: native's memory, and who raced."""
        policy = heap.set_policy(self.malloc, self.backend)
        raced = {"malloc": policy, "rival": sides[0].name, "ours": sides[-1].name}
        return raced | {mode: True for mode in machine.SAME_VISITS if self.options[mode]}

    def earlier(self, facts: dict) -> Run | None:
        """The run that --resume goes on with. Raises ClickException when it was of something else."""
        if not self.resume or not self.json_path.exists():
            return None
        run = read_run(self.json_path)
        # A pass of the same run goes on whatever became of the source tree meanwhile. Visits of --quick are short ones.
        same = (*machine.SAME, *machine.SAME_VISITS, *(() if supervisor.carried() else ("commit",)))
        found = machine.differences(run.machine | results.sides(run), facts, same)
        if found:
            raise click.ClickException(f"{self.json_path} cannot be resumed, it is of another run: {'; '.join(found)}")
        return run

    def finish(self, done: list[Result], run: Run, old: Run | None) -> int:
        if self.kernel:
            from minitorch_backend.bench import kernel_race

            return kernel_race.finish(done, run, self.console)
        rival = done[0].rival if done else "native"
        ours = [name for r in done for name in r.seconds if name != rival][-1:]
        terminal.show(self.console, report.table(done, rival, ours=ours[0] if ours else "minitorch"))
        self.console.print(report.summary(done, rival))
        problems = gate(done, old, run, self.force, self.console)
        for problem in problems:
            self.console.print(problem, style="red")
        if self.own_file and not any(r.timed for r in done):
            problems.append(NOT_REACHED)
            self.console.print(NOT_REACHED, style="yellow")
        failed = any(problem.startswith(("slower", NOTHING_COMPARED, NOT_REACHED)) for problem in problems)
        drawn = self.draw(run)
        return 1 if failed or (problems and self.check) or not drawn else 0

    def draw(self, run: Run) -> bool:
        """The pictures, where they are wanted; whether they are there."""
        if not self.plots:
            return True
        from minitorch_backend.bench import plots

        try:
            for path in plots.save(run, self.plots):
                self.console.print(f"picture: {path}", style="dim")
        except OSError as error:
            self.console.print(f"no pictures: {error}", style="red")
            return False
        return True
