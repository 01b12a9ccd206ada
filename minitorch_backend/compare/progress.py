"""A line that shows how far a comparison has come, on terminals: calls, findings, cost, time left."""

import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import Progress as Bars
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from minitorch_backend.compare.options import Options

INTERVAL = 0.25  # seconds between updates


class Progress:
    """Context manager; :meth:`update` may be called for each operator call.

    Time left is known when `--steps` names a last step: by the time of the steps so far.
    """

    def __init__(self, recorder: Any, options: Options) -> None:
        self.recorder, self.options = recorder, options
        self.last = self.start = time.monotonic()
        console = Console(file=sys.stderr)
        self.bars = None
        if console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self.bars = Bars(*columns, console=console, transient=True)
            self.task = self.bars.add_task("comparing")

    def __enter__(self) -> "Progress":
        if self.bars is not None:
            self.bars.start()
        return self

    def __exit__(self, *error: Any) -> None:
        if self.bars is not None:
            self.bars.stop()

    def update(self) -> None:
        now = time.monotonic()
        if self.bars is None or now - self.last < INTERVAL:
            return
        self.last = now
        self.bars.update(self.task, description=self.text(now - self.start))

    def text(self, seconds: float) -> str:
        """What the line says after so many seconds."""
        store, step = self.recorder.store, self.recorder.where.step
        text = (
            f"{store.calls:,} operator calls, {store.compared / max(seconds, 1e-9):,.0f} compared a second, step {step}"
        )
        if store.findings:
            text += f", {len(store.findings)} findings"
        last = self.options.steps[1] if self.options.steps else 0
        if 0 < step < last < 2**60:
            text += f", about {seconds / step * (last - step):.0f} s left"
        return text
