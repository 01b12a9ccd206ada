"""Runs conformance rows in worker processes and prints what passes, what fails and which operators are missing.

    python -m tests.conformance.run --op '^(exp|add)$' --dtype float32,bfloat16 --jobs 2

A row is (op_db entry, dtype, variant). A row that crashes or hangs ends its worker and is reported so, and the rest
goes on.
"""

import argparse
import collections
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import re
import resource
import signal
import sys
import time
from unittest import mock

from tests.conformance import results
from tests.conformance.variants import VARIANTS, limit_for

STATUS_COLOUR = {
    "pass": "green",
    "expected": "dim",
    "fail": "red",
    "missing": "yellow",
    "crash": "bold red",
    "timeout": "bold red",
    "none": "dim",
}


LARGE = 2 << 10  # MiB: a worker that has grown beyond is replaced before the next operator
PROGRESS = 20.0  # seconds between lines about how far the run is, where there is no terminal, and between saves


def worker(pipe: multiprocessing.connection.Connection, limit: str, memory: float) -> None:
    """Takes (op name, dtype name, variants) from the pipe, answers one message a variant, then None.

    `memory`: GiB beyond which an allocation fails, and with it the row; 0 for no limit.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    import minitorch_backend
    from minitorch_backend import _glibc

    if (libc := _glibc.glibc()) is not None:
        libc.mallopt(_glibc.M_MMAP_THRESHOLD, 1 << 20)  # what is freed is given back: rows of large samples need it
    if memory and minitorch_backend._C.backend_name() == "cpu":
        resource.setrlimit(resource.RLIMIT_DATA, (int(memory * 2**30),) * 2)
    torch.set_num_threads(1)
    from torch.testing._internal.common_methods_invocations import op_db

    from tests.conformance.checks import run_row

    ops = {op.formatted_name: op for op in op_db}
    while (task := pipe.recv()) is not None:
        name, dtype, variants = task
        for variant in variants:
            pipe.send(("start", variant))
            start = time.process_time()
            outcome = run_row(ops[name], getattr(torch, dtype), variant, limit_for(dtype, limit))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            pipe.send(("done", variant, outcome, time.process_time() - start, peak))
        torch.minitorch.empty_cache()
        pipe.send(None)


class Pool:
    """Worker processes, one task each at a time; a dead or hanging worker is replaced."""

    def __init__(self, jobs: int, limit: str, timeout: float, until: float = float("inf"), memory: float = 3.0) -> None:
        """No task is handed out after `until` (time.monotonic()); `memory` is a worker's limit in GiB."""
        self.until = until
        self.peak_mib, self.peak_row = 0, ""  # the largest worker's resident memory, and the row that it grew to it in
        self.context = multiprocessing.get_context("spawn")
        self.limit, self.timeout, self.memory = limit, timeout, memory
        # The workers take the GPUs that are named in turns.
        self.gpus = itertools.cycle(os.environ.get("CUDA_VISIBLE_DEVICES", "").split(","))
        self.slots = [self._start() for _ in range(jobs)]

    def _start(self) -> dict:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=worker, args=(theirs, self.limit, self.memory), daemon=True)
        with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": gpu} if (gpu := next(self.gpus)) else {}):
            process.start()
        theirs.close()
        return {"process": process, "pipe": ours, "task": None, "variant": None, "since": 0.0, "peak": 0}

    def run(self, tasks: list[tuple], report) -> None:
        """report(op, dtype, variant, status, detail, missing, seconds, cases, by_reference) for each row."""
        queue = collections.deque(tasks)
        while queue or any(slot["task"] for slot in self.slots):
            if time.monotonic() > self.until:
                queue.clear()
            for slot in self.slots:
                if slot["task"] is None and queue:
                    slot["task"] = queue.popleft()
                    slot["variant"], slot["since"] = None, time.monotonic()
                    slot["pipe"].send(slot["task"])
            busy = {slot["pipe"]: slot for slot in self.slots if slot["task"]}
            for pipe in multiprocessing.connection.wait(list(busy), timeout=1.0):
                self._receive(busy[pipe], queue, report)
            for i, slot in enumerate(self.slots):
                patience = self.timeout if slot["variant"] else 3 * self.timeout  # which includes importing torch
                hanging = slot["task"] and time.monotonic() - slot["since"] > patience
                if hanging:
                    slot["process"].kill()
                    self._lost(i, "timeout", f"no answer for {time.monotonic() - slot['since']:.0f} s", queue, report)
                elif slot["task"] and not slot["process"].is_alive() and not slot["pipe"].poll():
                    self._lost(i, "crash", f"exit code {slot['process'].exitcode}", queue, report)
        for slot in self.slots:
            slot["pipe"].send(None)

    def _receive(self, slot: dict, queue: collections.deque, report) -> None:
        try:
            message = slot["pipe"].recv()
        except EOFError:
            slot["process"].join(5)
            i = self.slots.index(slot)
            self._lost(i, "crash", f"exit code {slot['process'].exitcode}", queue, report)
            return
        if message is None:
            slot["task"] = None
            if slot["peak"] > LARGE:
                slot["pipe"].send(None)  # it ends
                self.slots[self.slots.index(slot)] = self._start()
        elif message[0] == "start":
            slot["variant"], slot["since"] = message[1], time.monotonic()
        else:
            _, variant, o, seconds, peak = message
            name, dtype, _ = slot["task"]
            slot["peak"] = peak
            if peak > self.peak_mib:
                self.peak_mib, self.peak_row = peak, f"{name} {dtype} {variant}"
            report(name, dtype, variant, o.status, o.detail, o.missing, seconds, o.cases, o.by_reference)
            slot["since"] = time.monotonic()

    def _lost(self, i: int, status: str, detail: str, queue: collections.deque, report) -> None:
        name, dtype, variants = self.slots[i]["task"]
        variant = self.slots[i]["variant"] or variants[0]
        report(name, dtype, variant, status, detail, "", 0.0, 0, 0)
        rest = variants[list(variants).index(variant) + 1 :]
        if rest:
            queue.appendleft((name, dtype, rest))
        self.slots[i] = self._start()


GOOD = ("pass", "none", "expected")


def select(args: argparse.Namespace) -> list[tuple]:
    """The tasks that the command line asks for."""
    from torch.testing._internal.common_methods_invocations import op_db

    from tests.conformance.families import CLAIMED, FAMILIES

    wanted = CLAIMED if args.claimed else None
    if args.family:
        wanted = {name for family in args.family.split(",") for name in FAMILIES[family]}
    variants = args.variant.split(",") if args.variant else VARIANTS
    tasks = []
    for op in op_db:
        name = op.formatted_name
        if args.op and not re.search(args.op, name):
            continue
        if wanted is not None and name not in wanted:
            continue
        supported = [str(d).removeprefix("torch.") for d in op.supported_dtypes("cpu")]
        dtypes = sorted(supported) if args.dtype == "all" else [d for d in args.dtype.split(",") if d in supported]
        tasks += [(name, dtype, tuple(variants)) for dtype in dtypes]
    return tasks


def spread(tasks: list[tuple], count: int) -> list[tuple]:
    """About `count` of the rows that have something to check, evenly over the families."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    from tests.conformance.calls import evenly
    from tests.conformance.checks import applies
    from tests.conformance.families import FAMILIES

    ops = {op.formatted_name: op for op in op_db}
    place = {name: i for i, name in enumerate(name for family in FAMILIES.values() for name in family)}
    tasks = sorted(tasks, key=lambda task: place.get(task[0], len(place)))
    rows = [(name, dtype, v) for name, dtype, vs in tasks for v in vs if applies(ops[name], getattr(torch, dtype), v)]
    return [(name, dtype, (variant,)) for name, dtype, variant in evenly(rows, count)]


def resumed(path: str | None, tasks: list[tuple]) -> tuple[list[dict], list[tuple]]:
    """The rows of an earlier run with the same library and what it left to do."""
    import minitorch_backend

    if path is None or not os.path.exists(path):
        return [], tasks
    if os.path.getmtime(path) < os.path.getmtime(minitorch_backend._C.__file__):
        print(f"{path} is older than the library: starting again")
        return [], tasks
    with open(path) as file:
        rows = json.load(file)
    done = {(row["op"], row["dtype"], row["variant"]) for row in rows}
    left = [(op, dtype, tuple(v for v in vs if (op, dtype, v) not in done)) for op, dtype, vs in tasks]
    left = [task for task in left if task[2]]
    return (rows, left) if left else ([], tasks)  # a run that was finished is no interrupted one


def print_table(rows: list[dict], verbose: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    by_op: dict[tuple, dict] = {}
    for row in rows:
        by_op.setdefault((row["op"], row["dtype"]), {})[row["variant"]] = row
    table = Table("op", "dtype", *VARIANTS, "s", box=None, pad_edge=False)
    for (op, dtype), cells in sorted(by_op.items()):
        if not verbose and all(c["status"] in GOOD for c in cells.values()):
            continue
        seconds = sum(c["seconds"] for c in cells.values())
        statuses = [cells[v]["status"] if v in cells else "" for v in VARIANTS]
        table.add_row(op, dtype, *(Text(s, style=STATUS_COLOUR.get(s, "")) for s in statuses), f"{seconds:.1f}")
    if table.row_count:
        console.print(table)
    for row in rows:
        if row["status"] in ("fail", "crash", "timeout", "unexpected pass"):
            detail = row["detail"] if verbose else " ".join(row["detail"].split())[:400]
            console.print(
                f"{row['status']}: {row['op']} {row['dtype']} {row['variant']}: {detail}",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
    missing = collections.Counter(row["missing"] for row in rows if row["missing"])
    if missing:
        console.print(
            "missing operators (rows): " + ", ".join(f"{name} ({n})" for name, n in missing.most_common()),
            soft_wrap=True,
        )
    counts = collections.Counter(row["status"] for row in rows)
    settled = sum(1 for row in rows if row["by_reference"])
    console.print(
        ", ".join(f"{n} {status}" for status, n in counts.most_common())
        + (f"; {settled} rows have values that only the float64 reference settled" if settled else "")
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.run", description=__doc__.splitlines()[0])
    parser.add_argument("--op", help="regular expression searched in the op_db name (variants as name_variant)")
    parser.add_argument("--family", help="names from tests/conformance/families.py, comma separated")
    parser.add_argument(
        "--claimed", action="store_true", help="the operators that tests/conformance/families.py claims"
    )
    parser.add_argument("--dtype", default="float32", help="dtype names, comma separated, or all (default float32)")
    parser.add_argument("--variant", help=f"comma separated, of {', '.join(VARIANTS)} (default all)")
    parser.add_argument(
        "--samples",
        metavar="N[,M]",
        default="all",
        help="at most N sample inputs a row, M in dtypes other than float32 (default all)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="worker processes (default 1); they share the GPUs that CUDA_VISIBLE_DEVICES names",
    )
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one row (default 120)")
    parser.add_argument("--memory", type=float, default=3.0, help="GiB for one worker, 0 for no limit (default 3)")
    parser.add_argument("--spread", type=int, metavar="N", help="only N of the rows, evenly over families and dtypes")
    parser.add_argument("--seconds", type=float, help="start no operator after this time; --resume goes on")
    parser.add_argument("--json", help="write all rows to this file")
    parser.add_argument(
        "--whole",
        action="store_true",
        help="what `make conformance` runs: --claimed --dtype all",
    )
    parser.add_argument(
        "--results",
        action="store_true",
        help="rewrite tests/conformance/results.json if every row is as expected"
        " (on a GPU: results-cuda.json, with what fails)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with the interrupted run of the same library that --json names"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="list passing rows and whole messages too")
    args = parser.parse_args()
    if args.whole:
        args.claimed, args.dtype = True, "all"
    if args.resume and not args.json:
        parser.error("--resume needs --json FILE")
    tasks = select(args)
    if not tasks:
        print("no row matches")
        return 2
    if args.spread:
        tasks = spread(tasks, args.spread)
    rows: list[dict] = []
    if args.resume:
        rows, tasks = resumed(args.json, tasks)
    earlier = len(rows)
    total = earlier + sum(len(variants) for _, _, variants in tasks)
    begun = said = time.monotonic()

    def save() -> None:
        if args.json:
            os.makedirs(os.path.dirname(os.path.abspath(args.json)), exist_ok=True)
            with open(args.json + ".part", "w") as file:
                json.dump(rows, file, indent=1)
            os.replace(args.json + ".part", args.json)

    def progress(last: str) -> None:
        nonlocal said
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if terminal:
            print(f"\r\033[K{len(rows)}/{total} {last}", end="", file=sys.stderr)
        if now - said < PROGRESS:
            return
        said = now
        save()
        if not terminal:
            bad = sum(results.judged(row) not in GOOD for row in rows)
            left = (now - begun) / max(1, len(rows) - earlier) * (total - len(rows))
            print(
                f"{len(rows)} of {total} rows, {bad} not as expected, {now - begun:.0f} s, about {left:.0f} s to go",
                file=sys.stderr,
                flush=True,
            )

    def report(op, dtype, variant, status, detail, missing, seconds, cases, by_reference) -> None:
        rows.append(
            {
                "op": op, "dtype": dtype, "variant": variant, "status": status, "detail": detail, "missing": missing,
                "seconds": seconds, "cases": cases, "by_reference": by_reference,
            }
        )  # fmt: skip
        progress(f"{op} {dtype} {variant}")

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        until = time.monotonic() + args.seconds if args.seconds else float("inf")
        pool = Pool(min(args.jobs, max(len(tasks), 1)), args.samples, args.timeout, until, args.memory)
        pool.run(tasks, report)
        print(
            f"largest worker: {pool.peak_mib} MiB in {pool.peak_row}; {sum(row['seconds'] for row in rows):.0f} s of processor time"
        )
    except KeyboardInterrupt:
        print("interrupted: what follows is what was done", file=sys.stderr)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    save()
    rows = [{**row, "status": results.judged(row)} for row in rows]
    print_table(rows, args.verbose)
    unfinished = total - len(rows)
    if unfinished:
        print(f"{unfinished} rows were not reached; the same command with --resume goes on")
        return 1
    good = all(row["status"] in GOOD for row in rows)
    if args.results:
        record(rows, args.samples, good)
    return 0 if good else 1


def record(rows: list[dict], samples: str, good: bool) -> None:
    """Writes the results where every row is as expected; on a GPU also where some fail."""
    from minitorch_backend.bench import machine

    facts = machine.describe()
    if facts["backend"] == "cuda":
        about = {"samples": samples, **{k: facts[k] for k in ("device", "torch", "commit", "date")}}
        results.write(results.table_of(rows, results.on_cuda), about, results.CUDA_PATH)
    elif good:
        results.write(results.table_of(rows), {"samples": samples})


if __name__ == "__main__":
    sys.exit(main())
