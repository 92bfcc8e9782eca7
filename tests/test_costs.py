"""What a training step costs, in operations and array sizes: a lost reduction or an extra pass over attention shows."""

import dataclasses

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from inverse_depth.contexts import Family, generator, sample_contexts
from inverse_depth.models import reference
from inverse_depth.models.base import ModelSpec, build_model
from inverse_depth.training import Objective, accumulate_gradients

CPU = torch.device("cpu")
WEIGHTS = [field.name for field in dataclasses.fields(reference.Weights)]
VIEWS = {"view", "_unsafe_view", "transpose", "unsqueeze", "squeeze", "expand", "select", "slice", "detach", "alias"}


class Arrays(TorchDispatchMode):
    """Counts the operations that make, or write into, an array of at least ``size`` elements."""

    def __init__(self, size):
        super().__init__()
        self.size, self.made = size, []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        name = function._schema.name.removeprefix("aten::")
        if name not in VIEWS:
            outputs = result if isinstance(result, tuple | list) else (result,)
            self.made += [name for out in outputs if isinstance(out, torch.Tensor) and out.numel() >= self.size]
        return result


def step(attention, depth, family, count, variant="controlled", parameters="merged", width=None):
    """One gradient of a batch, and what it needs: a function without arguments."""
    d = family.dimension
    spec = ModelSpec(attention, variant, parameters, depth, d, width or d)
    model = build_model(spec, (0,))
    contexts = sample_contexts(family, count, [generator("data", 0, 0)])
    objective = Objective(family, 0.5, torch.float32, CPU)
    teachers = None if model.linear_in_labels else objective.teachers("teacher", count, (0,), 0)
    return lambda: accumulate_gradients(model, contexts, objective, teachers)


def flops(*arguments, **options):
    gradient = step(*arguments, **options)
    with FlopCounterMode(display=False) as counter:
        gradient()
    return counter.get_total_flops()


def large_arrays(size, *arguments, **options):
    gradient = step(*arguments, **options)
    with Arrays(size) as arrays:
        gradient()
    return arrays.made


def difficult(dimension, length, a=0.0, k=2):
    return Family("difficult", dimension, length, k, a)


def test_softmax_does_the_products_that_it_must_and_no_more():
    d, length, depth, count = 8, 32, 16, 24
    logits = 2 * count * depth * length * d
    mixed = 2 * count * depth * length
    means = 2 * count * depth * length * (d + 1)  # backward: of w, and of k weighted by the gradient of the logits
    probes = 2 * 2 * count * depth * d * d
    values = 2 * 2 * count * length * d
    needed = logits + mixed + means + probes + values
    assert needed <= flops("softmax", depth, difficult(d, length), count) <= 1.02 * needed


def test_a_large_batch_is_met_in_parts_so_that_its_attention_is_never_whole():
    d, length, depth, count = 16, 64, 64, 1024  # the whole attention has 2^22 elements, the tokens 2^20
    assert large_arrays(2**20 + 1, "softmax", depth, difficult(d, length), count) == []


@pytest.mark.parametrize("variant", ["controlled", "decoupled_values"])
@pytest.mark.parametrize("a", [0.0, 1.0])
def test_softmax_makes_the_attention_once_and_the_gradient_of_its_logits_once(variant, a):
    d, length, depth, count = 4, 64, 16, 8
    made = large_arrays(count * depth * length, "softmax", depth, difficult(d, length, a), count, variant)
    assert sorted(made) == ["_softmax", "bmm", "mul_", "sub"]  # the logits and their softmax; their gradient, in place


@pytest.mark.parametrize("a", [0.0, 1.0])
@pytest.mark.parametrize("variant", ["controlled", "context_updates"])
def test_no_product_falls_back_to_a_loop_over_contexts(variant, a):
    """A batched product of operands with odd strides selects each context in turn; the profiler sees it."""

    def selections(count):
        gradient = step("softmax", 16, difficult(8, 64, a), count, variant)
        gradient()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            gradient()
        return sum(event.count for event in profile.key_averages() if event.key == "aten::select")

    assert selections(40) == selections(20)


def test_softmax_cost_is_linear_in_depth_and_context_length_and_does_not_know_the_width():
    base = flops("softmax", 16, difficult(8, 64), 16)
    assert 1.9 < flops("softmax", 32, difficult(8, 64), 16) / base < 2.0
    assert 1.9 < flops("softmax", 16, difficult(8, 128), 16) / base < 2.0
    assert flops("softmax", 16, difficult(8, 64), 16, width=64) == base


def test_context_updates_make_three_arrays_of_the_size_of_the_attention_for_each_layer_but_the_last():
    d, length, depth, count = 4, 48, 5, 3
    made = large_arrays(count * length * length, "softmax", depth, difficult(d, length), count, "context_updates")
    assert sorted(made) == sorted((depth - 1) * ["_softmax", "bmm", "mul_", "sub"])  # the last two in one array


def test_single_stream_never_makes_attention_between_context_tokens():
    d, length, count = 4, 512, 2
    assert (
        large_arrays(count * length * length, "softmax", 6, difficult(d, length), count, "single_stream", width=6) == []
    )


def test_linear_attention_on_the_difficult_task_meets_the_tokens_once():
    d, count, depth = 16, 4, 6
    short, long = (flops("linear", depth, difficult(d, length), count) for length in (256, 512))
    assert long - short == 2 * count * 256 * d * d  # S = X^T X / P, forward only
    made = large_arrays(count * 512 * d, "linear", depth, difficult(d, 512), count)
    assert made == []


def test_linear_attention_of_equal_moments_carries_one_vector():
    """A layer is a product of S, and one of B_l, with a vector; the gradient doubles each and adds none."""
    d, count = 16, 8
    family = Family("easy", d, None, 1, 1.0)
    costs = [flops("linear", depth, family, count) for depth in (4, 8, 16)]
    per_layer = (costs[2] - costs[1]) / 8
    assert per_layer == (costs[1] - costs[0]) / 4
    # S v and its gradient for v; v B^T and its gradients for v and B
    assert per_layer <= 2 * count * d * d * 5


def test_the_literal_model_costs_many_times_more():
    """The factored model's reduction against the attention over all pairs, in products alone."""
    d, length, depth, count = 16, 64, 16, 4
    family = difficult(d, length)
    model = build_model(ModelSpec("softmax", "controlled", "factored", depth, d, d), (0,))
    contexts = sample_contexts(family, count, [generator("data", 0, 0)])
    weights = reference.Weights(*(dict(model.weights.named_parameters())[name][0] for name in WEIGHTS))
    inputs = torch.cat([contexts.tokens[0], contexts.query[0][:, None]], dim=1)
    with FlopCounterMode(display=False) as counter:
        reference.softmax_attention(weights, inputs, inputs[:, :-1, 0]).square().mean().backward()
    assert counter.get_total_flops() / flops("softmax", depth, family, count) > 50
