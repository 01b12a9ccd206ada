"""Where in the user's program an operator call happens: module path, Python lines, phase and step, forward call.

Everything is recorded in the cheapest form (interned stacks of code objects, sequence numbers) and put into words only
for the calls that a report shows.
"""

import linecache
import os
import sys
import threading
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_HIDDEN = (os.path.dirname(os.path.abspath(torch.__file__)), _PACKAGE, "<frozen", os.path.dirname(os.__file__) + os.sep)
_CALL = nn.Module._call_impl.__code__  # a frame of it is a module at work
_SITE = os.sep + "site-packages" + os.sep
DEPTH = 8  # frames kept of a stack
MOST_NODES = 200_000  # of the autograd graph, remembered with their forward calls


class Where:
    """Follows modules, optimizers and the autograd graph while a comparison is on.

    With `follow` hooks keep track of the module at work. They cost something at every call of every module; where few
    operator calls are asked about, the stack is searched for modules instead.
    """

    def __init__(self, follow: bool = True) -> None:
        self.follow = follow
        self.step = 0
        self.modules: list[str] = []
        self.optimizer: str | None = None
        self.thread = 0
        self.names: dict[int, str] = {}
        self.hooks: list[Any] = []
        self.visible: dict[int, bool] = {}  # by the id of a code object, whose hash would take longer
        self.codes: dict[int, Any] = {}  # alive, so that no id is taken twice
        self.stacks: dict[tuple, int] = {}
        self.stack_list: list[tuple] = []
        self.text: dict[int, list[str]] = {}
        self.forward_of: dict[int, tuple[int, str, int]] = {}  # sequence number: (call, module, stack)
        self.last_sequence = -1
        self.roots: list[tuple[nn.Module, str]] = []

    # Hooks

    def install(self) -> None:
        self.thread = threading.get_ident()
        self.hooks = [
            register_optimizer_step_pre_hook(self.enter_optimizer),
            register_optimizer_step_post_hook(self.leave_optimizer),
        ]
        if self.follow:
            m = torch.nn.modules.module
            self.hooks += [
                m.register_module_forward_pre_hook(self.enter_module),
                m.register_module_forward_hook(self.leave_module, always_call=True),
            ]
        self.last_sequence = torch._C._autograd._get_sequence_nr()

    def remove(self) -> None:
        for hook in self.hooks:
            hook.remove()
        self.hooks = []

    def foreign(self) -> bool:
        """Whether another thread of the program is at work, not one of the autograd engine's, whose calls are ours."""
        return threading.get_ident() != self.thread and torch._C._current_graph_task_id() == -1

    def enter_module(self, module: nn.Module, inputs: Any) -> None:
        if self.foreign():
            return
        self.optimizer = None  # its step has raised
        self.modules.append(self.name_of(module))

    def name_of(self, module: nn.Module) -> str:
        """The path of a module that is called by those in `modules`; the outermost names the others."""
        if not self.modules:
            name = type(module).__name__
            if id(module) not in self.names or self.names[id(module)] != name:
                self.names = {id(m): f"{name}.{path}" if path else name for path, m in module.named_modules()}
                self.roots = [(module, name)]  # alive, so that no id is taken twice
        name = self.names.get(id(module))
        return name if name is not None else f"{self.modules[-1]}.{type(module).__name__}"

    def leave_module(self, module: nn.Module, inputs: Any, result: Any) -> None:
        if self.modules and not self.foreign():
            self.modules.pop()

    def enter_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        if self.foreign():
            return None
        self.optimizer = f"{type(optimizer).__name__}.step"
        if len(args) > 1 and callable(args[1]):
            return (args[0], self.outside(args[1]), *args[2:]), kwargs
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": self.outside(kwargs["closure"])}
        return None

    def outside(self, closure: Any) -> Any:
        """The closure that an optimizer calls to have the loss once more: forward and backward, no part of its step."""

        def work(*args: Any, **kwargs: Any) -> Any:
            name, self.optimizer = self.optimizer, None
            try:
                return closure(*args, **kwargs)
            finally:
                self.optimizer = name

        return work

    def leave_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.foreign():
            return
        self.optimizer = None
        self.step += 1
        self.modules.clear()
        if len(self.forward_of) > MOST_NODES:
            self.forward_of.clear()

    # Reading

    def path(self) -> str:
        if not self.follow:
            self.search()
        return self.modules[-1] if self.modules else ""

    def search(self) -> None:
        """Fill `modules` from the frames above."""
        found = []
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code is _CALL:
                found.append(frame.f_locals["self"])
            frame = frame.f_back
        self.modules = []
        for module in reversed(found):
            self.modules.append(self.name_of(module))

    def stack(self) -> int:
        """The user's frames above, innermost first, as a number; :meth:`lines` turns it into text."""
        frames = []
        frame = sys._getframe(1)
        visible = self.visible
        while frame is not None:
            code = frame.f_code
            seen = visible.get(id(code))
            if seen is None:
                name = code.co_filename
                seen = visible[id(code)] = not name.startswith(_HIDDEN) and _SITE not in name
                self.codes[id(code)] = code
            if seen:
                frames.append(id(code))
                frames.append(frame.f_lineno)
                if len(frames) == 2 * DEPTH:
                    break
            frame = frame.f_back
        key = tuple(frames)
        index = self.stacks.get(key)
        if index is None:
            index = self.stacks[key] = len(self.stack_list)
            self.stack_list.append(tuple((self.codes[c], line) for c, line in zip(key[::2], key[1::2], strict=True)))
        return index

    def lines(self, stack: int) -> list[str]:
        """The frames of a stack as "file:line in function: source", innermost first."""
        if not 0 <= stack < len(self.stack_list):
            return []
        found = self.text.get(stack)
        if found is None:
            found = self.text[stack] = [
                f"{code.co_filename}:{line} in {code.co_name}: {linecache.getline(code.co_filename, line).strip()}"
                for code, line in self.stack_list[stack]
            ]
        return found

    def locate(self, call: int, inputs: list[torch.Tensor]) -> tuple[str, str, int]:
        """(phase, module path, forward call or -1) of the call that is running on these tensors."""
        node = torch._C._current_autograd_node()
        if node is not None:
            index, module, _ = self.forward_of.get(node._sequence_nr(), (-1, "", -1))
            return "backward", module, index
        if self.optimizer is not None:
            return "optimizer", self.optimizer, -1
        sequence = torch._C._autograd._get_sequence_nr()
        module = self.path()
        if sequence != self.last_sequence:
            # A node of the autograd graph was made for this call: its backward pass will ask where that was.
            self.last_sequence = sequence
            if not self.follow and not any(t.requires_grad for t in inputs):
                return "forward", module, -1  # it was made for one of the calls that were not looked at
            self.forward_of[sequence - 1] = (call, module, self.stack())
        return "forward", module, -1
