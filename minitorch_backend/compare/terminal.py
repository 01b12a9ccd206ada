"""A report as tables on the terminal."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from minitorch_backend import terminal

SHOWN = 12  # findings and operators listed


def number(value: Any, digits: int = 3) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:.{digits}g}"


def findings_table(findings: list[dict[str, Any]]) -> Table:
    table = Table(title="Findings, in the order in which they began", title_justify="left", header_style="bold")
    for name in ("call", "operator", "error in ulp:\nsubject / reference"):
        table.add_column(name, no_wrap=True)
    table.add_column("verdict")
    table.add_column("where", overflow="fold")
    for f in findings[:SHOWN]:
        call = f["first"]
        where = " ".join(x for x in (call["phase"], f"step {call['step']}", call["module"]) if x)
        line = (call["forward_stack"] or call["stack"] or [""])[0]
        errors = f"{number(call['subject_ulp'])} / {number(call['reference_ulp'])}"
        times = f"{call['index']}" + (f"\n{f['count']} times" if f["count"] > 1 else "")
        detail = f"{call['verdict']}\n{call['detail']}" if call["detail"] else call["verdict"]
        table.add_row(times, Text(call["op"]), errors, Text(detail), Text(f"{where}\n{line}".strip()))
    return table


def operators_table(operators: list[dict[str, Any]]) -> Table:
    table = Table(title="Operators, the most distant first", title_justify="left", header_style="bold")
    table.add_column("operator", overflow="fold", min_width=24)
    for name in ("calls", "ulp subject", "ulp reference", "local", "inherited", "ms a call"):
        table.add_column(name, justify="right", no_wrap=True)
    for o in sorted(operators, key=lambda o: -(o["local"] if isinstance(o["local"], float) else 9e9))[:SHOWN]:
        milliseconds = number(1e3 * o["seconds"] / max(o["compared"], 1))
        table.add_row(
            Text(o["op"]), str(o["calls"]), number(o["subject_ulp"]), number(o["reference_ulp"]), number(o["local"]),
            number(o["inherited"]), milliseconds,
        )  # fmt: skip
    return table


def headline(data: dict[str, Any]) -> str:
    """What came of it, in a sentence."""
    run, findings = data["run"], data["findings"]
    if not run["compared"]:
        return f"Nothing was compared: no operator ran on {run['subject']}."
    if not findings:
        return (
            f"{run['compared']} operator calls on {run['subject']} compared with {run['reference']}: nothing to report."
        )
    call = findings[0]["first"]
    where = f" in {call['module']}" if call["module"] else ""
    return (
        f"{call['op']}: {call['verdict']}, first at call {call['index']} ({call['phase']}, step {call['step']}){where}."
    )


def print_report(data: dict[str, Any], console: Console | None = None) -> None:
    """Print the report's tables, and what follows a line each, also in a narrow terminal: a command stays whole."""
    console = console or terminal.console()
    if data["findings"]:
        terminal.show(console, findings_table(data["findings"]))
    if data["operators"]:
        terminal.show(console, operators_table(data["operators"]))
    if data["run"]["ended"] != "finished":
        console.print(f"Ended early: {data['run']['ended']}", style="bold yellow", soft_wrap=True)
    for note in data["notes"]:
        console.print(f"note: {note}", style="yellow", soft_wrap=True)
    console.print(headline(data), style="bold red" if data["findings"] else "bold green", soft_wrap=True)
    for f in data["findings"][:3]:
        if f["command"]:
            console.print(f"replay: {f['command']}", soft_wrap=True)
