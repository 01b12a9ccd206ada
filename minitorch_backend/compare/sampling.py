"""Which calls a sampled comparison looks at, and for which parts of a training it leaves the dispatcher.

In a dispatch mode even a call that is not looked at costs microseconds, which makes a small model's step a quarter
longer. So of PERIOD training steps one is watched, and each of its calls stands for PERIOD when calls are counted.

A training step is what lies between the first call of a module, with gradients on, and the end of an optimizer's step.
All else is watched: what comes between steps, evaluations without gradients, programs without modules or optimizers,
modules of a type (and with a training flag) that no watched part of the program has called yet, what goes on for so
long that it can be no step, and whatever happens while the program has a mode of its own. PERIOD is prime, so that each
of several optimizers that take turns is met.
"""

import threading
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode

PERIOD = 7
PATIENCE = 2  # periods of calls of modules after which a step that has not ended is none


class Sampling:
    """Counts calls, and takes `mode` off the stack of modes for training steps while it is entered.

    `left`: calls of an operator until one is looked at again. `weight`: how many a call counts for. `watched`:
    optimizer steps without a pause.
    """

    def __init__(self, mode: TorchDispatchMode, every: int, pauses: bool) -> None:
        self.mode, self.every = mode, every
        self.pauses = pauses and every >= 2 * PERIOD
        self.left: dict[Any, int] = {}
        self.weight = 1
        self.paused = False
        self.watched = 0
        self.turn = 0  # of PERIOD steps; the first is watched
        self.whole = True  # whether the step has had no pause
        self.modules = 0  # calls of them in this step
        self.most = 0  # of them in a step
        self.known: set[tuple[type, bool]] = set()  # types of modules, and their training flags
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

    def exit(self) -> None:
        """Before the mode leaves the stack, which it is on then."""
        for hook in self.hooks:
            hook.remove()
        self.hooks = []
        if self.paused:
            _push_mode(self.mode)
            self.paused = False

    def looked(self, func: Any) -> None:
        """A call of an operator was looked at."""
        self.left[func] = self.left.get(func, 0) + self.every - self.weight

    def elsewhere(self) -> bool:
        """Whether what happens is no part of the program's course: another thread, or the inside of a backward pass.

        The autograd engine puts the stack of modes back as it was when the pass began.
        """
        return threading.get_ident() != self.thread or torch._C._current_graph_task_id() != -1

    def end_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if threading.get_ident() != self.thread:
            return
        if not self.elsewhere():
            self.resume()
            if self.modules:
                if self.whole and self.turn == 0 and (self.modules <= self.most or not self.most):
                    self.most = PATIENCE * PERIOD * self.modules
                self.turn = (self.turn + 1) % PERIOD
            self.modules = 0
        self.watched += self.whole
        self.whole = not self.paused

    def begin_module(self, module: Any, inputs: Any) -> None:
        if self.elsewhere():
            return
        kind = (type(module), module.training)
        if not torch.is_grad_enabled():
            self.known.add(kind)
            self.resume()
            return
        self.modules += 1
        if self.turn == 0 and self.modules == 1:  # a mode of the program's may have been in the way before
            self.resume()
            self.whole = not self.paused
        if kind not in self.known:
            self.known.add(kind)
            self.turn = 0
            self.resume()
        elif self.modules == self.most + 1 and self.most:
            self.turn, self.whole = 0, True
            self.resume()
        if self.paused or not self.on_top():
            return
        if self.turn:
            self.pause()
        elif self.modules <= self.most:
            self.weight = PERIOD

    def on_top(self) -> bool:
        count = torch._C._len_torch_dispatch_stack()
        return count > 0 and torch._C._get_dispatch_stack_at(count - 1) is self.mode

    def pause(self) -> None:
        _pop_mode()
        self.depth = torch._C._len_torch_dispatch_stack()
        self.paused, self.whole = True, False

    def resume(self) -> None:
        """Put the mode back, unless the program is in a mode of its own: leaving that one would take ours away."""
        self.weight = 1
        if self.paused and torch._C._len_torch_dispatch_stack() == self.depth:
            _push_mode(self.mode)
            self.paused = False
