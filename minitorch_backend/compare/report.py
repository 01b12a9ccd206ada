"""A report as data, as JSON lines and as files."""

import json
import math
import pathlib
import platform
from dataclasses import asdict
from typing import Any

import torch


def clean(value: Any) -> Any:
    """Values as JSON has them: what is not finite becomes text or null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, dict):
        return {str(k): clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(v) for v in value]
    return value


def report_data(report: Any) -> dict[str, Any]:
    """Everything that a report shows."""
    store, options = report.store, report.options
    shadow = report.recorder.shadow
    findings = [f.as_dict() for f in store.sorted_findings()]
    return clean(
        {
            "run": {
                "subject": options.subject,
                "reference": options.reference,
                "command": " ".join(report.command),
                "ended": report.ended,
                "error": report.error,
                "seconds": round(report.seconds, 3),
                "calls": store.calls,
                "compared": store.compared,
                "steps": report.recorder.where.step,
                "watched": report.recorder.watched_steps,
                "shadow": shadow is not None and not shadow.off,
                "every": options.every,
                "torch": str(torch.__version__),
                "python": platform.python_version(),
                "threads": torch.get_num_threads(),
                "findings_lost": store.findings_lost,
            },
            "notes": list(store.notes),
            "verdicts": dict(store.verdicts.most_common()),
            "findings": findings,
            "operators": [
                {"op": op, **asdict(s), "verdicts": dict(s.verdicts)}
                for op, s in sorted(store.ops.items(), key=lambda item: -item[1].calls)
            ],
            "timeline": {
                "width": store.timeline.width,
                "local": [float(f"{v:.3g}") for v in store.timeline.local],
                "inherited": [float(f"{v:.3g}") for v in store.timeline.inherited],
                "ops": store.timeline.ops,
            },
            "calls": [{**asdict(c), "side": c.side} for c in store.kept()],
        }
    )


def write_jsonl(data: dict[str, Any], file: pathlib.Path) -> None:
    """One JSON object a line; "kind" says what it is: run, note, finding, operator, timeline, call."""
    with file.open("w") as out:

        def line(kind: str, content: dict[str, Any]) -> None:
            out.write(json.dumps({"kind": kind, **content}, ensure_ascii=False) + "\n")

        line("run", {**data["run"], "verdicts": data["verdicts"]})
        for note in data["notes"]:
            line("note", {"text": note})
        for kind in ("finding", "operator", "call"):
            for content in data[kind + "s"]:
                line(kind, content)
        line("timeline", data["timeline"])


def write_data(data: dict[str, Any], folder: pathlib.Path) -> pathlib.Path:
    """report.jsonl and report.html in a folder."""
    from minitorch_backend.compare.html import write_html

    folder.mkdir(parents=True, exist_ok=True)
    write_jsonl(data, folder / "report.jsonl")
    write_html(data, folder / "report.html")
    return folder


def write_report(report: Any, folder: pathlib.Path) -> pathlib.Path:
    return write_data(report_data(report), folder)
