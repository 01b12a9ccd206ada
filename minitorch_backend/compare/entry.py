"""A compared call on its way into the store: statistics, finding, one of the worst calls."""

import math
from typing import Any

import torch

from minitorch_backend.compare import judge
from minitorch_backend.compare.describe import describe
from minitorch_backend.compare.store import SEVERITY, Call


def report(c: Any) -> None:
    r = c.r
    store = r.store
    phase, module, forward = r.where.locate(c.index, c.inputs)
    op = c.op.full_name
    statistics = store.statistics(op)
    statistics.calls += 1
    statistics.compared += 1
    statistics.verdicts[c.verdict] += 1
    store.verdicts[c.verdict] += 1
    local = c.distance.relative
    statistics.distance_ulp = max(statistics.distance_ulp, c.distance.ulp)
    statistics.local = max(statistics.local, local)
    inherited = 0.0 if math.isnan(c.inherited) else c.inherited
    statistics.inherited = max(statistics.inherited, inherited)
    store.timeline.add(c.index, op, local, inherited)
    bad = c.verdict in judge.BAD
    score = SEVERITY.get(c.verdict, 0) * 1e6 + min(c.distance.norm, 1e5)
    if bad:
        found = store.find(op, c.verdict, phase)
        if found is not None:
            found.last = c.index
            if found.replay is None and found.count < 10 and r.on_finding is not None:
                r.on_finding(found, c)  # the first call's inputs were gone
    else:
        found = None
    first = bad and found is None
    if not first and not store.wants(score):
        return
    call = call_of(c, phase, module, forward)
    if first:
        finding = store.add_finding(call)
        if finding is not None and r.on_finding is not None:
            r.on_finding(finding, c)
    if store.wants(score):
        store.add_kept(score, call)


def call_of(c: Any, phase: str, module: str, forward: int) -> Call:
    where = c.r.where
    stack = where.stack()
    forward_stack: list[str] = []
    if forward >= 0:
        node = torch._C._current_autograd_node()
        entry = where.forward_of.get(node._sequence_nr()) if node is not None else None
        forward_stack = where.lines(entry[2]) if entry else []
    j = c.judgement
    call = Call(
        c.index, c.op.full_name, c.verdict, phase, where.step, module, where.lines(stack), forward,
        forward_stack, describe(c.args, c.kwargs), describe([c.result]), c.detail,
        distance_ulp=c.distance.ulp, local=c.distance.relative, inherited=c.inherited,
        result=c.judged_result,
    )  # fmt: skip
    if j is not None:
        if j.subject is not None:
            call.subject_ulp, call.subject_norm = j.subject.max_ulp, j.subject.norm
            call.subject_relative = j.subject.relative
        if j.reference is not None:
            call.reference_ulp, call.reference_norm = j.reference.max_ulp, j.reference.norm
            call.reference_relative = j.reference.relative
        if j.condition is not None:
            call.condition = j.condition
    return call


def rank(j: judge.Judgement) -> tuple[int, float]:
    """Which of a call's results stands for the call: the worst verdict, then the larger error."""
    return SEVERITY.get(j.verdict, 0), j.subject.norm if j.subject is not None else 0.0
