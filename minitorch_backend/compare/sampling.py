"""Which calls a sampled comparison looks at, and for which training steps it leaves the dispatcher.

In a dispatch mode even a call that is not looked at costs microseconds, which makes a small model's step a quarter
longer. So of PERIOD steps one is watched, and in it PERIOD times as many calls are looked at. A step ends with an
optimizer's. PERIOD is prime, so that each of several optimizers that take turns is met.
"""

import threading
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode

PERIOD = 7
PATIENCE = 2


class Sampling:
    """Counts calls, and takes `mode` off the stack of modes for whole steps while it is entered.

    Where no optimizer steps, in an evaluation say, nothing tells that training is over: after as many calls of modules
    as PATIENCE periods have, the mode is back until steps go on. A program that has modes of its own, or no modules, is
    watched throughout.

    `left`: calls of an operator until one is looked at again. `interval`: of how many one is. `watched`: optimizer
    steps without a pause.
    """

    def __init__(self, mode: TorchDispatchMode, every: int, pauses: bool) -> None:
        self.mode, self.every = mode, every
        self.pauses = pauses and every >= 2 * PERIOD
        self.left: dict[Any, int] = {}
        self.interval = every
        self.paused = False
        self.watched = 0
        self.steps = 0  # since the pause began
        self.modules = 0  # calls of modules since the pause, or the step that is watched, began
        self.most = 0  # of them in a pause
        self.depth = 0  # of the stack of modes without ours
        self.thread = 0
        self.hooks: list[Any] = []

    def enter(self) -> None:
        """After the mode has entered the stack."""
        self.thread = threading.get_ident()
        if self.pauses:
            self.hooks = [
                register_optimizer_step_post_hook(self.end_step),
                register_module_forward_pre_hook(self.begin_module),
            ]
        if self.paused:
            self.pause()

    def exit(self) -> None:
        """Before the mode leaves the stack, which it is on then."""
        for hook in self.hooks:
            hook.remove()
        self.hooks = []
        if self.paused:
            _push_mode(self.mode)

    def looked(self, func: Any) -> None:
        """A call of an operator was looked at."""
        if self.interval > 1:
            self.left[func] = self.interval - 1

    def end_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if threading.get_ident() != self.thread:
            return
        if self.paused:
            self.steps += 1
            if self.steps >= PERIOD - 1:
                self.resume(round(self.every / PERIOD))
            return
        self.watched += 1
        if self.modules and self.on_top():
            self.most = PATIENCE * PERIOD * self.modules
            self.steps = self.modules = 0
            self.pause()

    def begin_module(self, module: Any, inputs: Any) -> None:
        if threading.get_ident() != self.thread:
            return
        self.modules += 1
        if self.paused and self.modules > self.most:
            self.resume(self.every)

    def on_top(self) -> bool:
        count = torch._C._len_torch_dispatch_stack()
        return count > 0 and torch._C._get_dispatch_stack_at(count - 1) is self.mode

    def pause(self) -> None:
        _pop_mode()
        self.depth = torch._C._len_torch_dispatch_stack()
        self.paused = True

    def resume(self, interval: int) -> None:
        """Put the mode back, unless the program is in a mode of its own: leaving that one would take ours away."""
        if torch._C._len_torch_dispatch_stack() != self.depth:
            return
        _push_mode(self.mode)
        self.paused, self.interval, self.modules = False, interval, 0
        self.left.update((func, min(left, interval - 1)) for func, left in self.left.items())
