"""One operator call in work: subject, reference and arbiter on the same inputs, and what to make of their results.

Two depths. A *light* look measures the distance of the results in ulp and relative to the largest value. A *thorough*
one adds the arbiter, runs the subject twice, and checks that nothing was written that the operator does not write. The
first calls of every operator with every set of shapes are looked at thoroughly, later ones at intervals, and any call
whose distance goes beyond what the judged calls of its kind had.
"""

import math
from typing import Any

from torch import Tensor

from minitorch_backend.compare import generators, judge
from minitorch_backend.compare.distance import Distance, distance, quick_distance
from minitorch_backend.compare.entry import rank, report
from minitorch_backend.compare.exceptions import compare_errors, give_up
from minitorch_backend.compare.heap import passing_blocks
from minitorch_backend.compare.library import LIBRARY
from minitorch_backend.compare.metadata import layout_of, metadata_problem, out_of_memory, view_key, with_memory
from minitorch_backend.compare.mirror import Mirror, View, bytes_of
from minitorch_backend.compare.operators import Operator

CANCELS = 1024.0  # ulp between judged results of a kind beyond which ulp are counted on a sample
PART = 8  # tensors of a longer list that a look takes
EGREGIOUS = 1e4  # a distance, in units of epsilon times the largest value, that needs no arbiter
THOROUGH_EVERY = 512  # calls of a kind, after the first two


class Kind:
    """What the calls of one operator with one set of shapes have in common."""

    __slots__ = ("calls", "norm", "ulp", "wanted")

    def __init__(self) -> None:
        self.calls = 0
        self.wanted: list[int] = []  # elements of a list operator to look at next time
        self.ulp = 0.0  # largest distance that was judged to be fine
        self.norm = 0.0


class Comparison:
    """One call in work."""

    def __init__(self, recorder: Any, op: Operator, index: int, args: Any, kwargs: dict) -> None:
        self.r, self.op, self.index, self.args, self.kwargs = recorder, op, index, args, kwargs
        self.written = op.written(args, kwargs) if op.mutated else []
        self.verdict, self.detail, self.judged_result = judge.EQUAL, "", 0
        self.judgement: judge.Judgement | None = None
        self.distance = Distance(0.0, 0.0)
        self.inherited = math.nan
        self.before: View | None = None  # the inputs before the call, where they were saved
        self.state: Any = None
        self.thorough = False
        self.random = False
        self.result: Any = None
        self.inputs: list[Tensor] = []
        self.part: list[int] | None = None
        self.partial = False  # only the part is compared, not just judged
        self.local_call: tuple[Any, dict] = (args, kwargs)
        self.count = 0

    # Inputs

    def key(self) -> Any:
        shapes: list = [self.op.func]
        for a in self.args:
            if isinstance(a, Tensor):
                shapes.append(a.shape)
                shapes.append(a.dtype)
            elif type(a) in (list, tuple) and a and isinstance(a[0], Tensor):
                shapes.append(a[0].shape)
                shapes.append(len(a))
        return tuple(shapes)

    def written_tensors(self, args: Any, kwargs: dict) -> list[Tensor]:
        found = []
        for name in self.written:
            value = kwargs[name] if isinstance(name, str) else args[name]
            if isinstance(value, Tensor):
                found.append(value)
            else:
                found += [t for t in value if isinstance(t, Tensor)]
        return found

    def save_inputs(self) -> View:
        """A view of the inputs with the written storages copied, to be run on."""
        view = View(self.r.mirror)
        for t in self.written_tensors(*self.local_call) if self.written else ():
            if t.device.type == self.r.type:
                storage = t.untyped_storage()
                if storage._cdata not in view.storages:
                    view.storages[storage._cdata] = self.r.mirror.storage(storage, copy=True)
        return view

    def choose_part(self, kind: Kind) -> None:
        """Which elements of a call on long lists of tensors are looked at: a few, others at each call."""
        self.count = next((len(a) for a in self.args if isinstance(a, list) and len(a) > PART), 0)
        if self.count:
            start = kind.calls * PART
            self.part = kind.wanted or sorted({(start + i) % self.count for i in range(PART)})
            kind.wanted = []

    def looked_at(self, value: Any) -> Any:
        """An argument or result, long lists cut down to the part."""
        if self.part is not None and isinstance(value, (list, tuple)) and len(value) == self.count:
            return [value[i] for i in self.part]
        return value

    def look(self) -> tuple[list, dict]:
        """The call's arguments, long lists cut down to the part."""
        if self.part is None:
            return list(self.args), self.kwargs
        return [self.looked_at(a) for a in self.args], {k: self.looked_at(v) for k, v in self.kwargs.items()}

    # The steps

    def run(self) -> Any:
        r, op = self.r, self.op
        inputs = with_memory(self.args, self.kwargs)
        if inputs is None:
            return op.func(*self.args, **self.kwargs)
        self.inputs = inputs
        if op.is_view:
            return self.run_view()
        try:
            kind, dirty, local = self.prepare()
        except Exception as trouble:
            give_up(self, trouble)
            result = op.func(*self.args, **self.kwargs)
            if r.shadow is not None:
                r.shadow.forget(self, result)
            return result
        seeded = self.state is not None
        versions = self.versions()
        result, error = None, None
        try:
            result = self.result = self.subject()
        except Exception as raised:
            error = raised
        after = generators.get(r.subject, self.args, self.kwargs) if seeded else None
        try:
            return self.finish(kind, local, dirty, result, error, versions)
        except Exception as trouble:
            give_up(self, trouble)
            if r.shadow is not None:
                r.shadow.forget(self, result)
            return result
        finally:
            if after is not None:
                generators.put(r.subject, after, self.args, self.kwargs)
            if error is not None:
                raise error

    def subject(self) -> Any:
        """The subject's result. Where memory runs out, the shadow's is given back, and the call made once more."""
        try:
            return self.op.func(*self.args, **self.kwargs)
        except Exception as error:
            if not out_of_memory(error) or self.r.shadow is None or not self.r.shadow.surrender(self.r.store):
                raise
        if self.state is not None:
            generators.put(self.r.subject, self.state, self.args, self.kwargs)
        return self.op.func(*self.args, **self.kwargs)

    def prepare(self) -> tuple[Kind, View | None, View]:
        """Before the subject runs: what is known of the kind, the shadow's view of the inputs, and the reference's."""
        r, op = self.r, self.op
        kind = r.kind(self.key())
        kind.calls += 1
        self.thorough = (
            r.options.thorough or kind.calls <= r.thorough_first or kind.wanted or kind.calls % THOROUGH_EVERY == 0
        )
        dirty = r.shadow.begin(self) if r.shadow is not None else None
        if op.per_element:
            self.choose_part(kind)
            # The shadow needs the reference's whole result only where it has none of its own.
            followed = dirty is not None or r.shadow is None or r.shadow.off
            self.partial = self.part is not None and not self.thorough and followed
            if self.partial:
                self.local_call = self.look()
        local = self.save_inputs()
        if self.thorough or (self.part and self.written and not self.partial):
            with passing_blocks():
                self.before = self.save_all()
        elif self.written:
            self.before = self.save_inputs()
        self.random = op.draws(self.args, self.kwargs)
        if self.random and r.same_generators:
            self.state = generators.get(r.subject, self.args, self.kwargs)
        return kind, dirty, local

    def finish(self, kind: Kind, local: View, dirty: Any, result: Any, error: Any, versions: list[int]) -> Any:
        r, op = self.r, self.op
        if error is None and with_memory((result,), {}) is None:
            return result
        reference, failure, args, kwargs = self.run_reference(local)
        if error is not None or failure is not None:
            compare_errors(self, error, failure)
            if error is None and r.shadow is not None:
                r.shadow.forget(self, result)
            report(self)
            return result
        local_result = self.looked_at(result) if self.partial else result
        pairs = self.pairs(local_result, reference, args, kwargs)
        problem = metadata_problem(self, local_result, reference, args, kwargs, local, versions)
        if problem:
            self.verdict, self.detail = judge.METADATA, problem
        elif not op.uninitialised and not (self.random and self.state is None):
            if self.before is not None and r.mirror.in_place:
                self.forget_unwritten()
            self.compare_values(kind, pairs)
        if r.shadow is not None:
            self.inherited = r.shadow.advance(self, dirty, result, reference, local)
        report(self)
        return result

    def run_reference(
        self, view: View, prepared: tuple[list, dict] | None = None
    ) -> tuple[Any, Exception | None, list, dict]:
        """(result, exception, args, kwargs) of the reference on the inputs as `view` has them."""
        r = self.r
        args, kwargs = prepared or view.call(*self.local_call)
        try:
            if self.state is None:
                return self.op.reference(*args, **kwargs), None, args, kwargs
            with generators.seeded(r.reference, self.state, args, kwargs) as (a, k):
                return self.op.reference(*a, **k), None, args, kwargs
        except Exception as raised:
            return None, raised, args, kwargs

    def run_view(self) -> Any:
        view = prepared = None
        if self.op.reshapes:  # afterwards the argument is another shape
            self.written = self.op.written(self.args, self.kwargs)
            view = self.save_inputs()
            prepared = view.call(*self.local_call)
        try:
            result = self.result = self.op.func(*self.args, **self.kwargs)
        except Exception as raised:
            _, failure, _, _ = self.run_reference(view or View(self.r.mirror), prepared)
            compare_errors(self, raised, failure)
            report(self)
            raise
        if with_memory((result,), {}) is not None:
            key = None if view is not None else view_key(self.op, self.args, self.kwargs)
            said = None if key is None else layout_of(result, self.args[0])
            if said is None or self.r.views.get(key) != said:
                self.compare_view(result, view, prepared)
                if said is not None and self.verdict == judge.EQUAL:
                    self.r.remember_view(key, said)
            else:
                report(self)
        return result

    def compare_view(self, result: Any, view: View | None = None, prepared: tuple[list, dict] | None = None) -> None:
        """Views hold no values of their own: what counts is which memory they show, and how."""
        view = view or View(self.r.mirror)
        reference, failure, args, kwargs = self.run_reference(view, prepared)
        if failure is not None:
            compare_errors(self, None, failure)
        else:
            problem = metadata_problem(self, result, reference, args, kwargs, view, [])
            if problem:
                self.verdict, self.detail = judge.METADATA, problem
                if not isinstance(result, (list, tuple)) and result.shape == reference.shape:
                    self.detail += self.value_note(result, reference)
        report(self)

    def value_note(self, result: Tensor, reference: Tensor) -> str:
        seen = self.r.mirror.tensor(result)
        return "" if seen.dtype == reference.dtype and judge.same_bits(seen, reference) else "; it shows other values"

    # Metadata

    def versions(self) -> list[int]:
        """The version counters of what the call must not write (kernels may count their writes themselves)."""
        kept = self.inputs
        if self.written:
            written = {id(t) for t in self.written_tensors(self.args, self.kwargs)}
            kept = [t for t in kept if id(t) not in written]
        if LIBRARY is not None:
            return LIBRARY.versions(kept)
        return [0 if t.is_inference() else t._version for t in kept]

    def save_all(self) -> View:
        """All inputs copied: to see what the call wrote, to run it again, and for the arbiter and replay files."""
        mirror = self.r.mirror
        view = View(mirror, lambda key, storage: mirror.storage(storage, copy=True))
        view.call(*self.look())
        return view

    def forget_unwritten(self) -> None:
        """Drop the copies of inputs that the call has left as they were: they are still there to be read."""
        assert self.before is not None
        written = {t.untyped_storage()._cdata for t in self.written_tensors(self.args, self.kwargs)}
        if self.op.working_memory >= 0:
            written.add(self.args[self.op.working_memory].untyped_storage()._cdata)
        for key in [key for key in self.before.storages if key not in written]:
            del self.before.storages[key]

    # Values

    def pairs(self, result: Any, reference: Any, args: list, kwargs: dict) -> list[tuple[Any, Any]]:
        """(subject, reference) of each result and written argument, each on its own device."""
        if not self.written and not self.op.opaque and isinstance(result, Tensor):
            return [(result, reference)]
        mine, theirs = judge.flat_tensors(result), judge.flat_tensors(reference)
        written = self.written_tensors(*self.local_call) if self.written else []
        found = []
        for a, b in zip(mine, theirs, strict=False):
            if written and any(a is t for t in written):
                continue
            if len(found) in self.op.opaque:
                b = None
            found.append((a, b))
        if written:
            found += zip(written, self.written_tensors(args, kwargs), strict=True)
        return found

    def seen(self, t: Tensor) -> Tensor:
        return self.r.mirror.tensor(t) if t.device.type == self.r.type else t

    def seen_pair(self, a: Any, b: Any) -> tuple[Any, Any]:
        """A result and the reference's, both where the reference's device sees them."""
        if not isinstance(a, Tensor):
            return a, b
        a = self.seen(a)
        return a, b.to(a.device) if isinstance(b, Tensor) and b.device != a.device else b

    def compare_values(self, kind: Kind, pairs: list[tuple[Any, Any]]) -> None:
        worst = self.distance
        suspects = []
        for i, (a, b) in enumerate(pairs):
            if not isinstance(a, Tensor):
                if isinstance(b, (int, float, bool)) and not (a == b or (a != a and b != b)) and a is not None:
                    suspects.append(i)
                continue
            if not isinstance(b, Tensor):
                continue
            d = quick_distance(a, b, kind.ulp > CANCELS)
            if d is None:
                a, b = pairs[i] = self.seen_pair(a, b)
                d = distance(a, b, kind.ulp > CANCELS)
            if d.ulp == 0:
                continue
            if self.op.name in judge.TIES and not a.is_floating_point():
                continue
            if d.ulp > worst.ulp or d.norm > worst.norm:
                worst = Distance(*map(max, d, worst))
            exact = not (a.is_floating_point() or a.is_complex())
            beyond = d.norm > 4 * kind.norm + 8 or d.ulp > 32 * kind.ulp + 64
            if exact or beyond:
                suspects.append(i)
        self.distance = worst
        if worst.ulp or suspects:
            self.verdict = judge.AGREE
        if self.part is not None and not self.partial:
            pairs, suspects = self.of_part(kind, pairs, suspects)
        if suspects or self.thorough:
            if self.r.shadow is not None:
                self.r.shadow.sweep(self.r.store)  # a judgement needs the memory
            with passing_blocks(sum(t.nbytes for t in self.inputs)):
                self.judge_values(kind, [self.seen_pair(a, b) for a, b in pairs])

    def of_part(self, kind: Kind, pairs: list, suspects: list[int]) -> tuple[list, list[int]]:
        """Pairs and suspects among the elements looked at. Others are looked at next time, or judged now if far off."""
        assert self.part is not None
        lead = len(pairs) % self.count  # the None that an in-place form returns
        elsewhere = sorted({(i - lead) % self.count for i in suspects if i >= lead} - set(self.part))
        chosen = [*range(lead), *(n + i for n in range(lead, len(pairs), self.count) for i in self.part)]
        if elsewhere:
            kind.wanted = elsewhere[:PART]
            if self.distance.norm > EGREGIOUS:
                self.verdict, self.detail = judge.SUBJECT_WORSE, f"elements {elsewhere[:PART]} of the list; no arbiter"
        here = set(chosen) & set(suspects)
        return [pairs[i] for i in chosen], sorted(here)

    def judge_values(self, kind: Kind, pairs: list[tuple[Any, Any]]) -> None:
        """The thorough look: arbiter, then a second run."""
        statistics = self.r.store.statistics(self.op.full_name)
        arbiter = self.arbiter()
        if arbiter is not None and arbiter.results is None:
            self.r.store.note(f"{self.op.full_name}: {arbiter.failure}")
        statistics.judged += arbiter is not None and arbiter.results is not None
        fine, usable = True, None
        for i, (a, b) in enumerate(pairs):
            if a is None or b is None or (isinstance(a, Tensor) != isinstance(b, Tensor)):
                continue
            if self.op.name in judge.TIES and isinstance(a, Tensor) and not a.is_floating_point():
                continue
            usable = arbiter if arbiter is not None and arbiter.results and i < len(arbiter.results) else None
            j = judge.judge(a, b, usable, i, self.op.name.startswith(judge.PIVOTED))
            statistics.add_errors(j.subject, j.reference)
            if self.judgement is None or rank(j) > rank(self.judgement):
                self.judgement, self.judged_result = j, i
            fine = fine and j.verdict not in judge.BAD
        if fine:
            kind.ulp, kind.norm = max(kind.ulp, self.distance.ulp), max(kind.norm, self.distance.norm)
        if self.judgement is not None and self.judgement.verdict != judge.EQUAL:
            self.verdict, self.detail = self.judgement.verdict, self.judgement.detail
        usable = arbiter = None  # the second run needs the memory
        if self.before is not None and not self.op.uninitialised:
            self.run_twice()

    def arbiter(self) -> judge.Arbiter | None:
        if self.random:
            return None
        source = self.before
        if source is None and self.written:
            return None  # the state before the call is gone
        mirror = self.r.mirror

        def make_args() -> tuple[list, dict]:
            view = source or View(mirror)
            return view.call(*self.look())

        return judge.Arbiter(self.op.arbiter, make_args, self.written, widens=self.op.arbiter is not self.op.reference)

    def subject_again(self) -> list[Any]:
        """The results of another run of the subject on copies of its inputs."""
        assert self.before is not None
        r = self.r
        saved = self.before.storages

        def source(key: int, storage: Any) -> Any:
            kept = saved.get(key)
            if kept is None:  # not written
                kept = r.mirror.storage(storage)
            if r.mirror.in_place:
                copy = bytes_of(kept, r.reference).clone().untyped_storage()
                return LIBRARY.device_alias(copy) if r.mirror.shares else copy
            return bytes_of(kept, r.reference).to(r.subject).untyped_storage()

        view = View(Mirror(r.subject, r.subject), source)
        args, kwargs = view.call(*self.look())
        if self.state is not None:
            generators.put(r.subject, self.state, self.args, self.kwargs)
        result = self.op.func(*args, **kwargs)
        written = self.written_tensors(args, kwargs)
        return [x for x in judge.flat_tensors(result) if not any(x is w for w in written)] + written

    def run_twice(self) -> None:
        if self.random and self.state is None:
            return
        again = self.subject_again()
        written = self.written_tensors(*self.look())
        result = judge.flat_tensors(self.looked_at(self.result))
        first = [x for x in result if not any(x is w for w in written)] + written
        for i, (a, b) in enumerate(zip(first, again, strict=False)):
            if i in self.op.opaque:
                continue
            if isinstance(a, Tensor) and isinstance(b, Tensor):
                same = a.shape == b.shape and judge.same_bits(self.seen(a), self.seen(b))
            else:
                same = a == b or (a != a and b != b)
            if not same:
                text = f"two runs on the same inputs differ in result {i}"
                if self.verdict in judge.BAD:
                    self.detail = "; ".join(x for x in (self.detail, text) if x)
                else:
                    self.verdict, self.detail = judge.NONDETERMINISTIC, text
                return
