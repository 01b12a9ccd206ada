"""A native shadow of the whole run: what the reference would have computed, had it computed everything.

Only the difference is stored. A storage that the shadow does not know holds the same bits on both sides, so nothing is
copied until results part. Shadow storages have the layout of the subject's, byte for byte; views, saved tensors and
in-place writes need no bookkeeping beyond the storage's identity. Values that leave the subject device (``.item()``,
copies to the host) are the subject's: the program takes the subject's way, and the shadow follows.
"""

import math
from typing import Any

import torch
from torch import Tensor, UntypedStorage

from minitorch_backend.compare import generators, judge
from minitorch_backend.compare.distance import sampled_error
from minitorch_backend.compare.library import LIBRARY
from minitorch_backend.compare.metadata import out_of_memory
from minitorch_backend.compare.mirror import Mirror, View, window

SWEEP = 64  # calls between looking for storages that died
SWEEP_BYTES = 1 << 20  # new shadow memory after which it is time, too, or a quarter of what is held
MEASURED = 1  # results of a call that it is measured on


def expired(entries: dict[int, tuple[UntypedStorage, Any, int]]) -> list[int]:
    """The keys of entries whose storage is gone."""
    if LIBRARY is not None:
        return LIBRARY.expired(entries)
    gone = UntypedStorage._expired
    return [key for key, (_, weak, _) in entries.items() if gone(weak)]


class Shadow:
    """Shadow storages by the id of the subject's storage."""

    def __init__(self, mirror: Mirror, device: torch.device, limit: int | None) -> None:
        self.mirror, self.device, self.limit = mirror, device, limit
        self.storages: dict[int, tuple[UntypedStorage, Any, int]] = {}  # (shadow, weak reference, bytes)
        self.calls = self.fresh = self.held = 0
        self.off = False

    def begin(self, call: Any) -> View | None:
        """Before the subject runs: a view of the call's inputs in the shadow, or None if they hold the same bits."""
        self.calls += 1
        if self.calls % SWEEP == 0 or self.fresh > max(SWEEP_BYTES, self.held / 4):
            self.sweep(call.r.store)
        if not self.storages or self.off:
            return None
        known = self.storages
        if LIBRARY is not None:
            if not LIBRARY.touches(call.inputs, known):
                return None
        elif not any(t.untyped_storage()._cdata in known for t in call.inputs):
            return None
        view = View(self.mirror, known=self.storages)
        for t in call.written_tensors(call.args, call.kwargs) if call.written else ():
            storage = t.untyped_storage()
            key = storage._cdata
            if key not in known and t.device.type == self.mirror.source.type:
                view.storages[key] = self.mirror.storage(storage, copy=True)
        return view

    def advance(self, call: Any, view: View | None, result: Any, reference: Any, local: View) -> float:
        """After the subject ran: the shadow does the same. Returns the relative inherited error of the results."""
        if self.off or call.op.uninitialised:
            return math.nan
        if call.verdict == judge.METADATA or (call.random and call.state is None):
            self.forget(call, result)
            return math.nan
        if view is None:
            if call.distance.ulp:
                self.register(call, result, reference, local)
            return call.distance.relative
        try:
            shadowed = self.run(call, view)
        except Exception as error:
            self.fail(call, error)
            self.forget(call, result)
            return math.nan
        inherited = self.error_of(call, result, shadowed, view)
        self.register(call, result, shadowed, view)
        return inherited

    def run(self, call: Any, view: View) -> Any:
        args, kwargs = view.call(call.args, call.kwargs)
        if call.state is None:
            return call.op.reference(*args, **kwargs)
        with generators.seeded(self.device, call.state, args, kwargs) as (a, k):
            return call.op.reference(*a, **k)

    def error_of(self, call: Any, result: Any, shadowed: Any, view: View) -> float:
        worst = 0.0
        if isinstance(result, Tensor):
            pairs = [(result, shadowed)]
        else:
            pairs = list(zip(judge.flat_tensors(result), judge.flat_tensors(shadowed), strict=False))
        if call.written and not call.op.inplace_returns:
            written = call.written_tensors(call.args, call.kwargs)[:MEASURED]
            pairs = [(t, view.tensor(t)) for t in written] or pairs
        for a, b in pairs[:MEASURED]:
            if isinstance(a, Tensor) and isinstance(b, Tensor) and a.is_floating_point() and a.shape == b.shape:
                worst = max(worst, sampled_error(a, b, call.seen))
        return worst

    def register(self, call: Any, result: Any, shadowed: Any, view: View) -> None:
        """Make the shadow's results the shadow of the subject's."""
        if self.mirror.shares and not call.written:
            sizes = LIBRARY.take_shadows(self.storages, view.storages, result, shadowed)
            if sizes is not None:
                self.fresh += sizes[0]
                self.held += sizes[1]
                return
        for i, (a, b) in enumerate(zip(judge.flat_tensors(result), judge.flat_tensors(shadowed), strict=False)):
            if not isinstance(a, Tensor) or not isinstance(b, Tensor) or a.device.type != self.mirror.source.type:
                continue
            storage = a.untyped_storage()
            if storage._cdata in view.storages:
                continue
            if a.shape != b.shape:
                if i in call.op.opaque:
                    continue
                call.r.store.note(f"{call.op.full_name}: shapes depend on data, and the shadow starts again from here")
                continue
            self.put(storage, self.layout(storage, a, b))
        for t in call.written_tensors(call.args, call.kwargs):
            if t.device.type != self.mirror.source.type:
                continue
            storage = t.untyped_storage()
            self.put(storage, view.storages[storage._cdata])

    def layout(self, storage: UntypedStorage, a: Tensor, b: Tensor) -> UntypedStorage:
        """The storage of `b` laid out as that of `a`."""
        own = b.untyped_storage()
        plain = a.dtype == b.dtype and b.device == self.device and not b.is_conj() and not b.is_neg()
        alike = a.stride() == b.stride() and a.storage_offset() == b.storage_offset()
        if plain and alike and own.nbytes() == storage.nbytes():
            return own
        fresh = torch.empty(storage.nbytes(), dtype=torch.uint8, device=self.device).untyped_storage()
        window(fresh, a, self.device).copy_(b)
        return fresh

    def put(self, storage: UntypedStorage, shadow: UntypedStorage) -> None:
        key = storage._cdata
        known = self.storages.get(key)
        if known is None:
            size = storage.nbytes()
            self.fresh += size
            self.held += size
            self.storages[key] = (shadow, storage._weak_ref(), size)
        elif known[0] is not shadow:
            self.storages[key] = (shadow, known[1], storage.nbytes())
            self.held += storage.nbytes() - known[2]

    def forget(self, call: Any, result: Any) -> None:
        """The results hold the subject's values in the shadow as well."""
        for t in [*judge.flat_tensors(result), *call.written_tensors(call.args, call.kwargs)]:
            if isinstance(t, Tensor) and t.layout is torch.strided and not t._is_zerotensor():
                self.drop(t.untyped_storage()._cdata)

    def drop(self, key: int) -> None:
        known = self.storages.pop(key, None)
        if known is not None:
            self.held -= known[2]
            UntypedStorage._free_weak_ref(known[1])

    def sweep(self, store: Any) -> None:
        self.fresh = 0
        for key in expired(self.storages):
            self.drop(key)
        held = self.held
        if self.limit is not None and held > self.limit:
            store.note(
                f"the shadow grew to {held / 2**20:.0f} MiB, more than --memory allows, and was given up; from here on "
                "only local errors are known. --streaming leaves it out from the start"
            )
            self.clear()

    def clear(self) -> None:
        for key in list(self.storages):
            self.drop(key)
        self.off = True

    def surrender(self, store: Any) -> bool:
        """Give the memory back, for there is not enough. Whether there was any to give."""
        if self.off:
            return False
        store.note(
            "memory ran out, and the native shadow was given up; only local errors are known from here on. "
            "--streaming leaves it out from the start"
        )
        self.clear()
        return True

    def fail(self, call: Any, error: Exception) -> None:
        if out_of_memory(error):
            self.surrender(call.r.store)
        else:
            text = str(error).splitlines()[0] if str(error) else ""
            call.r.store.note(f"{call.op.full_name}: the shadow could not follow ({type(error).__name__}: {text})")
