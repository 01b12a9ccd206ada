"""Kinds of programs that a comparison must neither disturb nor accuse: each is compared, and nothing is found."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from minitorch_backend import compare

DEVICE = "minitorch"


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(DEVICE)


def batch(**settings):
    return torch.randn(4, 8, device=DEVICE, **settings)


def autocast_and_scaler():
    model = network()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler(DEVICE)
    for _ in range(2):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = model(batch()).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def checkpointing():
    model, x = network(), batch(requires_grad=True)
    for reentrant in (False, True):
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()


def accumulated_and_clipped():
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    for i in range(4):
        (model(batch()).mean() / 2).backward()
        if i % 2:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


def optimizers():
    kinds = [("Adam", {"foreach": True}), ("Adam", {"fused": True}), ("AdamW", {"foreach": False}), ("RMSprop", {})]
    for name, settings in [*kinds, ("SGD", {"fused": True, "momentum": 0.9}), ("Adagrad", {}), ("NAdam", {})]:
        model = network()
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=1e-3, **settings)
        for _ in range(3):
            optimizer.zero_grad()
            model(batch()).square().mean().backward()
            optimizer.step()


def tied_weights():
    embedding, head = nn.Embedding(11, 8).to(DEVICE), nn.Linear(8, 11, bias=False).to(DEVICE)
    head.weight = embedding.weight
    head(embedding(torch.randint(11, (3, 5)).to(DEVICE))).sum().backward()


def sparse_gradients():
    embedding = nn.Embedding(11, 8, sparse=True).to(DEVICE)
    optimizer = torch.optim.SparseAdam(embedding.parameters())
    embedding(torch.tensor([1, 2, 1], device=DEVICE)).sum().backward()
    optimizer.step()


def complex_numbers():
    a = torch.randn(4, 4, dtype=torch.complex64, device=DEVICE, requires_grad=True)
    ((a @ a.mH).abs() + (a * a.conj()).real).sum().backward()
    torch.view_as_real(a.detach()).exp_()


def chains_of_views():
    x = torch.randn(6, 6, device=DEVICE)
    x.t()[1:, ::2].add_(1)[0].mul_(2)
    x.diagonal().zero_()
    x.view(-1)[3:].exp_()
    x[x > 0] = 5


def views_in_place():
    x = torch.randn(2, 3, device=DEVICE)
    x.unsqueeze_(0).transpose_(0, 2).squeeze_().t_()
    x.resize_(2, 2).resize_(9).fill_(1)
    x.data = torch.ones(3, device=DEVICE)
    x.add_(1)


def hooks():
    model = network()
    model[0].register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 2,))
    model[2].weight.register_hook(lambda g: g * 3)
    model(batch(requires_grad=True)).sum().backward()


def own_function():
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0].exp()

    Exp.apply(torch.randn(4, device=DEVICE, requires_grad=True)).sum().backward()


def function_transforms():
    w, x = torch.randn(4, 3, device=DEVICE), torch.randn(5, 4, device=DEVICE)

    def f(w, x):
        return (x @ w).tanh().sum()

    torch.func.vmap(torch.func.grad(f), (None, 0))(w, x)
    torch.func.jvp(lambda w: f(w, x), (w,), (w,))
    torch.func.jacrev(torch.sin)(x[0])
    torch.func.linearize(torch.sin, x[0])[1](x[0])
    torch.func.hessian(lambda x: x.sin().sum())(x[0])


def inference():
    model = network()
    with torch.inference_mode():
        model(batch()).add_(1)[0].exp_()


def double_backward():
    x = torch.randn(4, device=DEVICE, requires_grad=True)
    (gradient,) = torch.autograd.grad(x.tanh().pow(3).sum(), x, create_graph=True)
    gradient.square().sum().backward()


def recurrent():
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        model = kind(5, 7, 2, bidirectional=True, dropout=0.2, batch_first=True).to(DEVICE)
        model(torch.randn(3, 4, 5, device=DEVICE))[0].sum().backward()
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(4, 3, 5, device=DEVICE), [4, 3, 2])
    nn.LSTM(5, 7).to(DEVICE)(packed)[0].data.sum().backward()


def attention_with_a_mask():
    q = torch.randn(2, 2, 5, 8, device=DEVICE, requires_grad=True)
    F.scaled_dot_product_attention(q, q, q, is_causal=True, dropout_p=0.1).sum().backward()
    mask = torch.ones(5, 5, dtype=torch.bool, device=DEVICE).tril()
    F.scaled_dot_product_attention(q, q, q, attn_mask=mask).sum().backward()


def shapes_from_data():
    x = torch.randn(20, device=DEVICE)
    x[x > 0].sum()
    torch.unique((x * 3).int())
    torch.bincount((x.abs() * 3).long())
    torch.multinomial(x.abs(), 3)


def decompositions():
    torch.manual_seed(0)
    a = torch.randn(5, 5, device=DEVICE)
    torch.linalg.svd(a)
    torch.linalg.eigh(a + a.T)
    torch.linalg.inv(a)


def identities():
    """Results of zeros and ones, whose errors in ulp say nothing, from arguments that are one tensor."""
    for n in (3, 8, 33):
        torch.manual_seed(n)
        a = torch.randn(n, n, device=DEVICE)
        torch.linalg.solve(a, a)
        torch.linalg.solve(a.T, a.T)
        torch.linalg.solve_triangular(a.triu(), a.triu(), upper=True)
        torch.linalg.lstsq(a, a)
        torch.cholesky_solve(a @ a.T, torch.linalg.cholesky(a @ a.T + torch.eye(n, device=DEVICE)))
        torch.linalg.pinv(a) @ a
        torch.cdist(a, a)


def singular_matrices():
    """Pivots, ranks and logarithms that turn on the last bit."""
    for n in (3, 5, 8, 33):
        torch.manual_seed(n + 12)
        a = torch.randn(n, n, device=DEVICE)
        b = torch.cat([a[: n // 2], a[: n - n // 2]])
        torch.linalg.det(b)
        torch.linalg.slogdet(b)
        torch.linalg.lu_factor_ex(b)
        torch.linalg.matrix_rank(b)


def ctc_loss():
    scores = torch.randn(10, 3, 5, device=DEVICE).log_softmax(2).requires_grad_()
    targets = torch.randint(1, 5, (3, 4)).to(DEVICE)
    lengths, target_lengths = torch.tensor([10, 9, 10]), torch.tensor([4, 3, 2])
    F.ctc_loss(scores, targets, lengths, target_lengths).backward()
    F.ctc_loss(scores, targets, lengths.tolist(), target_lengths.tolist(), reduction="sum").backward()
    nn.CTCLoss(zero_infinity=True)(scores, targets, lengths.to(DEVICE), target_lengths.to(DEVICE)).backward()


def generative_and_adversarial():
    make = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.LeakyReLU(0.2), nn.Linear(16, 2)).to(DEVICE)
    first = nn.utils.parametrizations.spectral_norm(nn.Linear(2, 16))
    critic = nn.Sequential(first, nn.LeakyReLU(0.2), nn.Linear(16, 1)).to(DEVICE)
    of_make, of_critic = torch.optim.Adam(make.parameters()), torch.optim.RMSprop(critic.parameters())
    for _ in range(2):
        real, fake = torch.randn(6, 2, device=DEVICE), make(torch.randn(6, 8, device=DEVICE))
        share = torch.rand(6, 1, device=DEVICE)
        mixed = (share * real + (1 - share) * fake.detach()).requires_grad_()
        (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
        loss = critic(fake.detach()).mean() - critic(real).mean() + ((slope.norm(2, 1) - 1) ** 2).mean()
        of_critic.zero_grad()
        loss.backward()
        of_critic.step()
        of_make.zero_grad()
        (-critic(make(torch.randn(6, 8, device=DEVICE)))).mean().backward()
        of_make.step()


def line_search():
    model, x = nn.Linear(5, 1).to(DEVICE), torch.randn(20, 5, device=DEVICE)
    optimizer = torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe", max_iter=5)

    def loss():
        optimizer.zero_grad()
        value = F.mse_loss(model(x), x.sum(1, keepdim=True))
        value.backward()
        return value

    for _ in range(2):
        optimizer.step(loss)


def generation_with_a_cache():
    torch.manual_seed(0)
    tokens, norm, qkv = nn.Embedding(11, 8), nn.RMSNorm(8), nn.Linear(8, 24)
    nn.ModuleList([tokens, norm, qkv]).to(DEVICE)
    x = tokens(torch.randint(1, 11, (2, 5), device=DEVICE))
    q, k, v = qkv(norm(x)).chunk(3, -1)
    F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    with torch.no_grad():
        keys, ids = [], torch.randint(1, 11, (2, 1), device=DEVICE)
        for _ in range(4):
            q, k, v = qkv(norm(tokens(ids[:, -1:]))).chunk(3, -1)
            keys.append((k, v))
            k, v = (torch.cat(parts, 1) for parts in zip(*keys, strict=True))
            scores = (F.scaled_dot_product_attention(q, k, v)[:, -1] @ tokens.weight.T).topk(5)
            ids = torch.cat([ids, scores.indices.gather(1, torch.multinomial(scores.values.softmax(-1), 1))], 1)


def encoder_that_skips_padding():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).to(DEVICE).eval()
    padding = torch.zeros(3, 7, dtype=torch.bool, device=DEVICE)
    padding[0, 5:] = True
    with torch.inference_mode():
        model(torch.randn(3, 7, 16, device=DEVICE), src_key_padding_mask=padding)


def vision_transformer_in_bfloat16():
    torch.manual_seed(0)
    patch, layer = nn.Conv2d(3, 16, 4, 4), nn.TransformerEncoderLayer(16, 2, 32, 0.1, "gelu", batch_first=True)
    model = nn.ModuleList([patch, layer, nn.LayerNorm(16), nn.Linear(16, 5)]).to(DEVICE)
    first = nn.Parameter(torch.zeros(1, 1, 16, device=DEVICE))
    optimizer = torch.optim.AdamW([first, *model.parameters()], lr=1e-3)

    def scores(x):
        tokens = model[0](x).flatten(2).transpose(1, 2)
        return model[3](model[2](model[1](torch.cat([first.expand(len(x), -1, -1), tokens], 1)))[:, 0])

    for _ in range(3):
        x, y = torch.randn(4, 3, 16, 16, device=DEVICE), torch.randint(5, (4,), device=DEVICE)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = F.cross_entropy(scores(x), y, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    with torch.no_grad(), torch.autocast(DEVICE, dtype=torch.bfloat16):
        scores(x).float().softmax(-1).topk(3)


def tagger_of_packed_sentences():
    torch.manual_seed(0)
    embedding, lstm, head = nn.Embedding(20, 8, padding_idx=0), nn.LSTM(8, 10, 2, bidirectional=True), nn.Linear(20, 4)
    model = nn.ModuleList([embedding, lstm, head]).to(DEVICE)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9, centered=True)
    for _ in range(2):
        lengths = torch.randint(2, 7, (5,))
        words, tags = torch.randint(1, 20, (5, 7)), torch.randint(4, (5, 7))
        behind = torch.arange(7)[None] >= lengths[:, None]
        words, tags = words.masked_fill(behind, 0).to(DEVICE), tags.masked_fill(behind, -100).to(DEVICE)
        packed = nn.utils.rnn.pack_padded_sequence(embedding(words), lengths, batch_first=True, enforce_sorted=False)
        y, _ = nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True, total_length=7)
        optimizer.zero_grad()
        F.cross_entropy(head(y).transpose(1, 2), tags).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        nn.utils.clip_grad_value_(model.parameters(), 0.1)
        optimizer.step()


def variational_autoencoder():
    torch.manual_seed(0)
    narrow = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.SiLU(), nn.Flatten(), nn.Linear(128, 6))
    grow = nn.Sequential(nn.Linear(3, 128), nn.Unflatten(1, (8, 4, 4)), nn.ConvTranspose2d(8, 4, 4, 2, 1), nn.ELU())
    wide = nn.Sequential(nn.BatchNorm2d(4), nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(4, 1, 3, 2, 1))
    model = nn.ModuleList([narrow, grow, wide]).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, foreach=True, amsgrad=True)
    generator = torch.Generator(device=DEVICE).manual_seed(3)
    average = [p.detach().clone() for p in model.parameters()]
    for _ in range(3):
        x = torch.bernoulli(torch.rand(6, 1, 8, 8, device=DEVICE, generator=generator), generator=generator)
        mean, spread = narrow(x).chunk(2, 1)
        q = torch.distributions.Normal(mean, F.softplus(spread) + 1e-4)
        prior = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
        drawn = wide(grow(q.rsample() + 0.01 * torch.randn_like(mean)))
        lost = F.binary_cross_entropy_with_logits(drawn, x, reduction="none").flatten(1).sum(1)
        optimizer.zero_grad(set_to_none=False)
        (lost + torch.distributions.kl_divergence(q, prior).sum(1)).mean().backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(average, list(model.parameters()), 0.01)


def conjugated_and_negated_views():
    x = torch.randn(3, 4, dtype=torch.complex64, device=DEVICE)
    x.conj().imag.add_(1)
    torch.add(x.conj().imag, x.real)
    x.mH @ x


def large_values():
    x = torch.tensor([3e38, -3e38, 1.0, torch.inf], device=DEVICE)
    for seed in range(3):  # sums of infinities of both signs: NaN or infinite, as rounding and order have it
        torch.manual_seed(seed)
        (torch.randn(1, 6) * 1e34).to(DEVICE) @ (torch.randn(6, 8) * 1e16).to(DEVICE)
    return x / 3, x.exp(), x.neg() - x / 2


def compiled():
    @torch.compile(backend="eager")
    def function(x):
        return (x.sin() + 1).cos()

    function(batch())
    torch.compile(torch.sin, backend="eager", fullgraph=True)(batch())


def lazy_modules():
    model = nn.Sequential(nn.LazyLinear(4), nn.Softplus()).to(DEVICE)
    model(batch()).sum().backward()


def copies_and_state():
    model = network()
    copy.deepcopy(model).load_state_dict(model.state_dict())
    model.half()(batch().half())
    model.to("cpu")


PROGRAMS = [
    autocast_and_scaler, checkpointing, accumulated_and_clipped, optimizers, tied_weights, sparse_gradients,
    complex_numbers, chains_of_views, views_in_place, hooks, own_function, function_transforms, inference,
    double_backward, recurrent, attention_with_a_mask, shapes_from_data, decompositions, identities,
    singular_matrices, ctc_loss, lazy_modules, generative_and_adversarial, line_search, generation_with_a_cache,
    encoder_that_skips_padding, conjugated_and_negated_views, large_values, compiled, copies_and_state,
    vision_transformer_in_bfloat16, tagger_of_packed_sentences, variational_autoencoder,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_runs_and_is_not_accused(program):
    report = compare.run(program)
    assert report.ended == "finished", report.error
    assert [(f.first.op, f.first.verdict, f.first.detail, f.first.inputs) for f in report.findings] == []
    assert report.store.compared > 0
    assert not [note for note in report.store.notes if "could not be compared" in note]


def test_program_that_changes_nothing_is_the_same_with_and_without():
    """Numbers that a compared program computes are those that it computes alone."""

    def train():
        model = network()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            F.dropout(model(batch()), 0.3).square().mean().backward()
            optimizer.step()
        return [p.detach().cpu() for p in model.parameters()]

    alone, compared = train(), compare.run(train).result
    assert all(torch.equal(a, b) for a, b in zip(alone, compared, strict=True))
