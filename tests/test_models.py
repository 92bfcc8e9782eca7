"""The exact reductions against the literal models: output and gradients in double precision over random sizes."""

import dataclasses
import itertools

import pytest
import torch

from inverse_depth.contexts import Family, generator, sample_contexts
from inverse_depth.models import reference
from inverse_depth.models.base import ModelSpec, build_model
from inverse_depth.models.softmax import SoftmaxAttention, _Mixture, probes_and_keys

SIZES = [
    # depth, dimension, width, context length, target size, a
    (1, 3, 3, 5, 1, 0.0),
    (2, 4, 6, 7, 2, 1.0),
    (3, 5, 5, 9, 3, 0.5),
    (5, 2, 7, 4, 2, 2.0),
    (8, 6, 8, 12, 4, 0.0),
]
MODELS = [("softmax", "controlled"), ("softmax", "decoupled_values"), ("linear", "controlled")]
LITERAL = {"softmax": reference.softmax_attention, "linear": reference.linear_attention}
SEEDS = (3, 11)


def draw(family, count=6):
    return sample_contexts(family, count, [generator("data", seed, 0) for seed in SEEDS], dtype=torch.float64)


def teachers(count, dimension):
    return torch.randn(len(SEEDS), count, dimension, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


def in_model_coordinates(contexts, replica):
    """Tokens and, last, the query of one replica, rotated, shape (C, P + 1, d)."""
    inputs = torch.cat([contexts.tokens[replica], contexts.query[replica][:, None]], dim=1)
    return inputs if contexts.rotation is None else inputs @ contexts.rotation[replica].mT


def literal_errors(attention, weights, contexts, beta):
    """y_hat - y* of the literal model, shape (R, C), where ``weights(replica)`` are its matrices."""
    errors = []
    for replica in range(len(SEEDS)):
        labels = (contexts.tokens[replica] @ beta[replica][..., None])[..., 0]
        target = (contexts.target[replica] * beta[replica]).sum(-1)
        errors.append(LITERAL[attention](weights(replica), in_model_coordinates(contexts, replica), labels) - target)
    return torch.stack(errors)


def close(actual, expected):
    scale = max(1.0, float(expected.detach().abs().max()))
    return float((actual - expected).detach().abs().max()) <= 1e-10 * scale


@pytest.mark.parametrize("attention, variant", MODELS)
@pytest.mark.parametrize("depth, dimension, width, length, k, a", SIZES)
def test_factored_model_equals_the_literal_one(attention, variant, depth, dimension, width, length, k, a):
    model = build_model(ModelSpec(attention, variant, "factored", depth, dimension, width), SEEDS, torch.float64)
    shake = torch.Generator().manual_seed(7)
    for parameter in model.parameters():  # away from the special initial label stream
        parameter.data += 0.3 * torch.randn(parameter.shape, dtype=torch.float64, generator=shake)
    contexts = draw(Family("difficult", dimension, length, k, a))
    beta = teachers(len(contexts), dimension)
    parameters = dict(model.weights.named_parameters())
    names = [field.name for field in dataclasses.fields(reference.Weights)]

    reduced = (model.residual(contexts) * beta).sum(-1)
    literal = literal_errors(
        attention, lambda r: reference.Weights(*(parameters[name][r] for name in names)), contexts, beta
    )
    assert close(reduced, literal)
    pull = torch.cos(torch.arange(reduced.numel(), dtype=torch.float64)).reshape(reduced.shape)
    gradients = torch.autograd.grad((reduced * pull).sum(), list(parameters.values()), allow_unused=True)
    expected = torch.autograd.grad((literal * pull).sum(), list(parameters.values()), allow_unused=True)
    for name, ours, theirs in zip(parameters, gradients, expected, strict=True):
        assert close(ours, theirs), name


@pytest.mark.parametrize("attention, variant", MODELS)
@pytest.mark.parametrize("depth, dimension, width, length, k, a", SIZES)
def test_merged_model_is_a_literal_one(attention, variant, depth, dimension, width, length, k, a):
    """B_l and the gain are the literal model with W_x an isometry, W_q = I and the label stream in one direction."""
    model = build_model(ModelSpec(attention, variant, "merged", depth, dimension, width), SEEDS, torch.float64)
    model.weights.gain.data += 0.2 * torch.arange(1, model.weights.gain.shape[1] + 1)
    contexts = draw(Family("difficult", dimension, length, k, a))
    beta = teachers(len(contexts), dimension)
    isometry = torch.linalg.qr(torch.eye(width, dimension, dtype=torch.float64)).Q
    direction = torch.eye(width, dtype=torch.float64)[0]

    def weights(replica):
        matrices = model.weights.matrices()[replica]
        # the softmax model's RMS norm scales an N-dimensional stream to sqrt(N), the merged one's tokens to sqrt(d)
        scale = width if attention == "linear" else dimension / width
        keys = (isometry @ matrices.mT @ isometry.mT) * scale
        gains = model.weights.gains()[replica]
        identity = torch.eye(width, dtype=torch.float64)
        values = gains[:, None, None] * identity if attention == "softmax" else identity[None]
        out = direction if attention == "softmax" else gains[0] * direction
        return reference.Weights(isometry, identity.expand(depth, -1, -1), keys, values, direction, out)

    parameters = list(model.weights.parameters())
    reduced = (model.residual(contexts) * beta).sum(-1)
    literal = literal_errors(attention, weights, contexts, beta)
    assert close(reduced, literal)
    gradients = torch.autograd.grad(reduced.square().sum(), parameters)
    expected = torch.autograd.grad(literal.square().sum(), parameters)
    assert all(close(ours, theirs) for ours, theirs in zip(gradients, expected, strict=True))


@pytest.mark.parametrize("variant", ["controlled", "decoupled_values"])
def test_layers_are_the_terms_of_the_output(variant):
    model = build_model(ModelSpec("softmax", variant, "merged", 5, 4, 4), SEEDS, torch.float64)
    contexts = draw(Family("difficult", 4, 9, 2, 1.0))
    assert close(model.layer_residuals(contexts).mean(2), model.residual(contexts))
    attention = model.mean_attention(contexts)
    assert torch.allclose(attention.sum(-1), torch.ones((), dtype=torch.float64))
    if variant == "controlled":
        assert close((attention[:, :, None] @ contexts.tokens)[:, :, 0] - contexts.target, model.residual(contexts))


def stream_of_full_rank(width, dimension):
    """W_x an isometry, W_y a direction, a scale between the RMS norms of N and d numbers."""
    isometry = torch.linalg.qr(torch.eye(width, dimension, dtype=torch.float64)).Q
    return isometry, torch.eye(width, dtype=torch.float64)[0], torch.eye(width, dtype=torch.float64)


@pytest.mark.parametrize("depth, dimension, width, length, k, a", SIZES)
def test_context_updates_are_the_literal_ones(depth, dimension, width, length, k, a):
    model = build_model(
        ModelSpec("softmax", "context_updates", "merged", depth, dimension, width), SEEDS, torch.float64
    )
    model.weights.update.data = torch.tensor([-2.3, 0.7], dtype=torch.float64)
    model.weights.gain.data *= 1.1
    contexts = draw(Family("difficult", dimension, length, k, a))
    beta = teachers(len(contexts), dimension)
    isometry, direction, identity = stream_of_full_rank(width, dimension)

    def literal(replica):
        keys = isometry @ model.weights.matrices()[replica].mT @ isometry.mT * dimension / width
        out = model.weights.gains()[replica, 0] * direction
        weights = reference.Weights(isometry, identity.expand(depth, -1, -1), keys, identity[None], direction, out)
        labels = (contexts.tokens[replica] @ beta[replica][..., None])[..., 0]
        inputs = in_model_coordinates(contexts, replica)
        output = reference.softmax_attention(weights, inputs, labels, model.weights.update[replica])
        return output - (contexts.target[replica] * beta[replica]).sum(-1)

    compare(model, model.error(contexts, beta), torch.stack([literal(r) for r in range(len(SEEDS))]))


@pytest.mark.parametrize("depth, dimension, width, length, k, a", SIZES)
def test_single_stream_is_the_literal_one(depth, dimension, width, length, k, a):
    model = build_model(ModelSpec("softmax", "single_stream", "merged", depth, dimension, width), SEEDS, torch.float64)
    shake = torch.Generator().manual_seed(7)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, dtype=torch.float64, generator=shake)
    contexts = draw(Family("difficult", dimension, length, k, a))
    beta = teachers(len(contexts), dimension)
    w = model.weights

    def literal(replica):
        identity = torch.eye(width, dtype=torch.float64).expand(depth, -1, -1)
        keys = model.effective()["matrices"][replica].mT
        weights = reference.Weights(
            w.w_x[replica], identity, keys, w.w_v[replica][None], w.w_y[replica], w.w_o[replica]
        )
        labels = (contexts.tokens[replica] @ beta[replica][..., None])[..., 0]
        output = reference.single_stream_attention(weights, in_model_coordinates(contexts, replica), labels)
        return output - (contexts.target[replica] * beta[replica]).sum(-1)

    errors = model.error(contexts, beta)
    compare(model, errors, torch.stack([literal(r) for r in range(len(SEEDS))]))
    assert close(model.layer_errors(contexts, beta).mean(-1), errors)


def compare(model, reduced, literal):
    """Outputs and gradients agree."""
    assert close(reduced, literal)
    parameters = dict(model.weights.named_parameters())
    gradients = torch.autograd.grad(reduced.square().sum(), list(parameters.values()), allow_unused=True)
    expected = torch.autograd.grad(literal.square().sum(), list(parameters.values()), allow_unused=True)
    for name, ours, theirs in zip(parameters, gradients, expected, strict=True):
        zero = torch.zeros((), dtype=torch.float64)
        assert close(zero if ours is None else ours, zero if theirs is None else theirs), name


def test_context_attention_is_the_first_layers(monkeypatch):
    """With two layers, r_0 = p_2 / 2 + (m/2) p_2 A_1 / 2 + p_1 / 2 (App. C.3)."""
    model = build_model(ModelSpec("softmax", "context_updates", "merged", 2, 4, 4), SEEDS, torch.float64)
    model.weights.update.data = torch.tensor([-2.3, 0.7], dtype=torch.float64)
    contexts = draw(Family("difficult", 4, 9, 2, 1.0))
    controlled = SoftmaxAttention(model.weights)
    rows = torch.stack([torch.softmax(p, -1) for p in controlled_logits(controlled, contexts)], dim=2)
    m = model.weights.update[:, None, None]
    row = (rows[:, :, 0] + rows[:, :, 1] + m / 2 * (rows[:, :, 1:] @ model.context_attention(contexts, 0))[:, :, 0]) / 2
    expected = (row[:, :, None] @ contexts.tokens)[:, :, 0] - contexts.target
    assert close(model.residual(contexts), expected)


def controlled_logits(model, contexts):
    probes, keys = probes_and_keys(contexts, model.effective())
    return (probes @ keys.mT).unbind(2)


def test_contexts_may_be_shared_by_the_replicas():
    for attention, kind in itertools.product(("softmax", "linear"), ("merged", "factored")):
        model = build_model(ModelSpec(attention, "controlled", kind, 3, 4, 4), SEEDS, torch.float64)
        family = Family("difficult", 4, 9, 2, 1.0)
        shared = sample_contexts(family, 5, [generator("validation", 0, 0)], dtype=torch.float64)
        twice = [generator("validation", 0, 0) for _ in SEEDS]
        assert close(model.residual(shared), model.residual(sample_contexts(family, 5, twice, dtype=torch.float64)))


def test_infinite_context_is_the_limit_of_long_ones():
    """With S drawn from P tokens, the linear model approaches the one with S = Sigma, at the rate of sqrt(1 / P)."""
    model = build_model(ModelSpec("linear", "controlled", "merged", 3, 4, 4), (0,), torch.float64)
    infinite = sample_contexts(Family("easy", 4, None, 1, 1.0), 8, [generator("data", 0, 0)], dtype=torch.float64)
    limit, distance = model.residual(infinite), []
    for length in (100, 10_000):
        tokens = torch.randn(1, 8, length, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        finite = dataclasses.replace(infinite, tokens=tokens * infinite.eigenvalues.sqrt())
        distance.append(float((model.residual(finite) - limit).detach().norm()))
    assert 4 < distance[0] / distance[1] < 25


def test_isotropic_response_is_the_model_when_its_layers_are_isotropic():
    for kind in ("merged", "factored"):
        model = build_model(ModelSpec("linear", "controlled", kind, 3, 4, 4), SEEDS, torch.float64)
        if kind == "merged":
            model.weights.matrix.data = torch.eye(4, dtype=torch.float64).expand(2, 3, 4, 4) * 0.7
        else:
            model.weights.w_q.data = model.weights.w_k.data = torch.eye(4, dtype=torch.float64).expand(2, 3, 4, 4) * 1.3
        contexts = draw(Family("easy", 4, None, 1, 1.0))
        response = model.isotropic_response(contexts.eigenvalues)
        assert close((response[:, None] - 1) * contexts.query, model.residual(contexts))


def test_gradient_of_the_mixture():
    random = torch.Generator().manual_seed(0)
    shapes = [(3, 4, 5), (3, 6, 5), (3, 4)]
    inputs = [torch.randn(s, dtype=torch.float64, generator=random, requires_grad=True) for s in shapes]
    assert torch.autograd.gradcheck(_Mixture.apply, inputs)


def test_replicas_do_not_depend_on_each_other():
    spec = ModelSpec("softmax", "controlled", "factored", 3, 4, 6)
    together, alone = build_model(spec, SEEDS), build_model(spec, SEEDS[1:])
    for both, one in zip(together.parameters(), alone.parameters(), strict=True):
        assert torch.equal(both[1:], one)


@pytest.mark.parametrize("depth", [1, 4, 64, 512])
def test_initial_loss_does_not_grow_with_depth(depth):
    """The initial loss is at most of the order of the target's power, at every depth."""
    for attention, family in (
        ("softmax", Family("difficult", 8, 32, 2, 1.0)),
        ("linear", Family("easy", 8, None, 1, 1.0)),
    ):
        model = build_model(ModelSpec(attention, "controlled", "merged", depth, 8, 8), SEEDS, torch.float64)
        contexts = draw(family, 64)
        ratio = float(model.residual(contexts).detach().square().sum() / contexts.target.square().sum())
        assert ratio < 3, (attention, ratio)
