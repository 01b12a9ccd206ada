"""Trains on a device in a process of its own: native CUDA, which needs one.

With minitorch registered, PyTorch's engine refuses the backward pass of CUDA tensors (docs/runtime.md). So native CUDA
trains in a child that does not load minitorch. Steps still take turns with those of the other devices: the child waits
until it is asked for one, and times it itself.
"""

import contextlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
import traceback
from multiprocessing.connection import Connection
from typing import Any

import torch
from training import Here, Result

LAST_LINES = 6  # of a traceback: they name the error and where it was raised
PATIENCE = 5.0  # seconds that a child may take to end by itself


class ApartError(RuntimeError):
    """What went wrong in the child: a sentence, then the last lines of its traceback or of what it wrote."""


def environment(device: torch.device) -> dict[str, str]:
    """Variables of a process for this device alone: minitorch is loaded into its own only."""
    return {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": str(int(device.type == "minitorch"))}


def last_lines(text: str) -> str:
    return "\n".join(text.rstrip().splitlines()[-LAST_LINES:])


class Apart:
    """The parent's end, used as Here is. The child starts at once; the first question waits for it."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.connection, theirs = multiprocessing.Pipe()
        self.written = tempfile.TemporaryFile()  # noqa: SIM115  close() closes it
        command = [sys.executable, __file__, str(theirs.fileno()), str(device), str(torch.get_num_threads())]
        # In a session of its own the child does not hear the terminal's Ctrl-C: it ends when the parent hangs up.
        self.process = subprocess.Popen(
            command, env=environment(device), pass_fds=[theirs.fileno()], stderr=self.written, start_new_session=True
        )
        theirs.close()

    def begin(self, name: str, steps: int, dropout: bool = True) -> None:
        self._ask("begin", name, steps, dropout)

    def step(self, seed: int) -> tuple[float, float]:
        return self._ask("step", seed)

    def finish(self) -> Result:
        return self._ask("finish")

    def _ask(self, request: str, *arguments: Any) -> Any:
        """The child's answer. Raises ApartError with what it raised, or when it is gone."""
        try:
            self.connection.send((request, arguments))
            failed, answer = self.connection.recv()
        except (EOFError, OSError):
            code = self._end()
            raise ApartError(
                f"The process that trains on {self.device} ended with exit status {code}.\n{last_lines(self._text())}"
            ) from None
        if failed:
            raise ApartError(f"Training on {self.device}, in a process of its own, failed.\n{last_lines(answer)}")
        return answer

    def _text(self) -> str:
        """What the child wrote to stderr."""
        self.written.seek(0)
        return self.written.read().decode(errors="replace")

    def _end(self) -> int:
        """Hang up, and the child's exit status."""
        self.connection.close()
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def close(self) -> None:
        """End the child; warnings that it wrote are passed on."""
        if not self.written.closed:
            if self._end() == 0:
                sys.stderr.write(self._text())
            self.written.close()


def serve(connection: Connection, device: torch.device) -> None:
    """The child: does what it is asked for until the parent hangs up."""
    here = Here(device)
    while True:
        try:
            request, arguments = connection.recv()
        except EOFError:
            return
        answer: tuple[bool, Any]
        try:
            answer = False, getattr(here, request)(*arguments)
        except Exception:  # the parent reports it
            answer = True, traceback.format_exc()
        connection.send(answer)


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[3]))
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the parent has gone
        serve(Connection(int(sys.argv[1])), torch.device(sys.argv[2]))
