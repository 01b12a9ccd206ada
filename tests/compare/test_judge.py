"""Whom a judgement blames: a finding is what one side does worse than the other, not what both do badly alike."""

import pytest
import torch

from minitorch_backend.compare import judge

X = torch.linspace(-2, 2, 64)
NEAR_ONE = 1 + torch.linspace(1e-6, 2e-6, 8)  # of which a digit is left after 1 is taken away


def judged(operator, x, subject, reference):
    """The judgement of results that are off by these shares."""
    right = operator(x.double())
    made = [(right * (1 + share)).to(x.dtype) for share in (subject, reference)]
    return judge.judge(*made, judge.Arbiter(operator, lambda: ((x,), {}), ()))


@pytest.mark.parametrize("shares", [(0.01, -0.01), (0.01, 0.05), (0.05, 0.01)])
def test_both_far_off_alike_is_said_and_blames_nobody(shares):
    found = judged(torch.exp, X, *shares)
    assert found.verdict == judge.BOTH_POOR and found.detail.endswith("the problem is well conditioned")
    assert found.verdict not in judge.BAD


@pytest.mark.parametrize("shares,verdict", [((0.1, 1e-4), judge.SUBJECT_WORSE), ((1e-4, 0.1), judge.REFERENCE_WORSE)])
def test_who_is_far_behind_another_that_is_poor_is_blamed(shares, verdict):
    found = judged(torch.exp, X, *shares)
    assert found.verdict == verdict and verdict in judge.BAD


def test_where_the_problem_explains_it_the_report_says_so():
    found = judged(lambda x: 1 / (x - 1), NEAR_ONE, 0.05, -0.05)
    assert found.verdict == judge.BOTH_POOR and found.detail == "the inputs' rounding moves the result as far"


@pytest.mark.parametrize("singular", [True, False])
def test_an_exact_zero_in_a_singular_matrix_accuses_nobody(singular):
    """Whether the last pivot of twin rows is zero, or what rounding left of it, is chance."""
    torch.manual_seed(0)
    a = torch.randn(5, 5)
    if singular:
        a[4] = a[0]
    arbiter = judge.Arbiter(torch.linalg.lu_factor_ex, lambda: ((a,), {}), ())
    made = [torch.tensor(n, dtype=torch.int32) for n in (5, 0)]
    found = judge.judge(*made, arbiter, 2, pivoted=True)
    assert found.verdict == (judge.BOTH_POOR if singular else judge.SUBJECT_WORSE)
