#!/usr/bin/env python3
"""Times of single operators of training in PyTorch on this machine's GPU, for sim's cost models.

    pytorch_ops.py [--seconds N] [--seed N] [--only FAMILY,...] -o FILE

Shapes are drawn at random, not taken from networks, and mixed over operators, so that a run that
--seconds ends has a fair sample of each. A row of CSV for each operator and pass:

    op,pass,precision,shape,median_s,low_s,high_s,method

pass is forward, data (gradient of the input), weights (of the weights) or backward (of all at once).
method graph: some ten to hundred calls captured as a CUDA graph, so that no host is in the time, which
is the graph's over its calls; events: as many calls between two events. Inputs are random; there are so
many sets of them that they exceed the L2 cache, where memory allows. low and high are of five runs.
Images lie channels last. tf32 rows allow it in products and convolutions; others do not.
"""
import argparse
import itertools
import math
import random
import sys
import time

import torch
import torch.nn.functional as F

WINDOW_S, RUNS, BEYOND_CACHE, MOST_BYTES = 3e-3, 5, 150e6, 6e9
DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Case:
    """An operator with its shape: sets of inputs and, by pass, what is called on one of them."""

    def __init__(self, op, precision, make, passes, **shape):
        self.op, self.precision, self.make, self.passes, self.shape = op, precision, make, passes, shape

    def words(self):
        return ";".join(f"{key}={value}" for key, value in self.shape.items())


def randn(*shape, dtype, channels_last=False):
    x = torch.randn(*shape, device=DEVICE, dtype=dtype)
    return x.to(memory_format=torch.channels_last) if channels_last else x


def log_uniform(rng, low, high):
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))


def multiple(rng, low, high, of):
    return max(of, log_uniform(rng, low, high) // of * of)


def convolution(rng, precision):
    """Up to 1e12 FLOP; kernels, strides and groups as networks have them, extents at random."""
    dtype = DTYPES[precision]
    while True:
        kernel = rng.choice([(1, 1)] * 10 + [(3, 3)] * 10 + [(5, 5)] * 2 + [(7, 7), (11, 11), (1, 7), (7, 1), (1, 3), (3, 1)])
        stride = rng.choice([1] * 4 + [2]) if kernel != (11, 11) else 4
        edge = rng.choice([7, 8, 10, 14, 16, 17, 20, 28, 32, 35, 40, 56, 64, 71, 80, 112, 128, 147, 160, 224])
        n = rng.choice([4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256])
        c, k = (multiple(rng, 16, 2048, of) for of in (rng.choice([8, 16, 32, 64]), rng.choice([8, 16, 32, 64])))
        kind, groups = rng.random(), 1
        if kind < 0.08 and max(kernel) > 1 or kernel[0] == 11:
            c, groups = 3, 1
        elif kind < 0.16 and max(kernel) > 1:
            k, groups = c, c
        elif kind < 0.24 and max(kernel) > 1:
            groups = rng.choice([2, 4, 32])
            c, k = max(groups, c // groups * groups), max(groups, k // groups * groups)
        out = [(edge + 2 * (r // 2) - r) // stride + 1 for r in kernel]
        flops = 2 * n * out[0] * out[1] * k * c // groups * kernel[0] * kernel[1]
        elements = n * edge * edge * c + n * out[0] * out[1] * k
        if elements * dtype.itemsize < MOST_BYTES / 4 and 1e8 < flops < 1e12 and min(out) > 0:
            break
    return convolved(precision, n, c, edge, k, kernel, stride, groups)


def grouped_convolution(rng, precision):
    """As many channels as filters in each group, a power of two, as in ResNeXt and RegNet; filters of a channel each."""
    while True:
        width = rng.choice([1, 1, 4, 8, 16, 32, 64])
        groups = rng.choice([32, 64]) if width > 1 else multiple(rng, 32, 1024, 32)
        edge, n = rng.choice([7, 14, 16, 28, 32, 56, 112]), rng.choice([16, 32, 64, 128, 256])
        c, size = groups * width, rng.choice([3, 3, 3, 5])
        if 5e6 < n * edge * edge * c < 3e8 and n * edge * edge * c * width * size * size < 5e11:
            return convolved(precision, n, c, edge, c, (size, size), rng.choice([1, 1, 2]), groups)


def convolved(precision, n, c, edge, k, kernel, stride, groups):
    """The three passes of a convolution that is padded by half of its filter."""
    dtype = DTYPES[precision]
    padding = [r // 2 for r in kernel]
    out = [(edge + 2 * pad - r) // stride + 1 for r, pad in zip(kernel, padding)]

    def make():
        return (randn(n, c, edge, edge, dtype=dtype, channels_last=True),
                randn(k, c // groups, *kernel, dtype=dtype, channels_last=True),
                randn(n, k, *out, dtype=dtype, channels_last=True))

    def backward(mask):
        return lambda x, w, g: torch.ops.aten.convolution_backward(
            g, x, w, None, [stride] * 2, padding, [1, 1], False, [0, 0], groups, mask)

    passes = {"forward": lambda x, w, g: F.conv2d(x, w, None, stride, padding, 1, groups),
              "data": backward([True, False, False]), "weights": backward([False, True, False])}
    if c == 3:
        del passes["data"]
    return Case("conv", precision, make, passes, n=n, c=c, h=edge, w=edge, k=k, r=kernel[0], s=kernel[1],
                stride=stride, groups=groups)


def product(rng, precision):
    """The three products of y = x W^T: rows, units, channels; some with extents that are not aligned."""
    dtype = DTYPES[precision]
    while True:
        m, n, k = multiple(rng, 64, 65536, 8), *(multiple(rng, 32, most, rng.choice([64, 64, 64, 32, 8, 1]))
                                                 for most in (65536, 16384))
        if 1e8 < m * n * k < 1e12 and max(m * n, m * k, n * k) < 1e9:
            break

    def make():
        return randn(m, k, dtype=dtype), randn(n, k, dtype=dtype), randn(m, n, dtype=dtype)

    return Case("product", precision, make,
                {"forward": lambda x, w, g: x @ w.t(), "data": lambda x, w, g: g @ w,
                 "weights": lambda x, w, g: g.t() @ x}, m=m, n=n, k=k)


def batched_product(rng, precision):
    dtype = DTYPES[precision]
    while True:
        b = rng.choice([8, 16, 32, 64, 96, 128, 192, 256, 384])
        m, n, k = (multiple(rng, 32, 2048, rng.choice([8, 32, 64])) for _ in range(3))
        if 1e8 < b * m * n * k < 3e11 and b * max(m * n, m * k, n * k) < 5e8:
            break
    return Case("batched_product", precision,
                lambda: (randn(b, m, k, dtype=dtype), randn(b, k, n, dtype=dtype)),
                {"forward": torch.bmm}, b=b, m=m, n=n, k=k)


def gradient(function, count):
    """Passes of a function of `count` inputs: forward, and backward by autograd."""
    def backward(*inputs):
        *_, y, g = inputs
        wanted = [x for x in inputs[:count] if x.requires_grad]
        return torch.autograd.grad(y, wanted, g, retain_graph=True)

    return {"forward": lambda *inputs: function(*inputs[:count]), "backward": backward}


def differentiable(op, precision, function, inputs, passes=("forward", "backward"), **shape):
    """`inputs` makes one set; those of floats get gradients."""
    def make():
        values = [x.requires_grad_() if x.is_floating_point() else x for x in inputs()]
        y = function(*values)
        g = torch.randn_like(y)
        return (*values, y, g)

    count = len(inputs())
    all_passes = gradient(function, count)
    return Case(op, precision, make, {name: all_passes[name] for name in passes}, **shape)


def image(rng):
    while True:
        n = rng.choice([4, 8, 16, 32, 64, 128])
        c = multiple(rng, 16, 2048, rng.choice([8, 16, 64]))
        h = rng.choice([7, 8, 14, 16, 17, 28, 32, 35, 56, 64, 71, 112, 147, 160])
        if 1e5 < n * c * h * h < 3e8:
            return n, c, h


def lines(rng, most_width=16384):
    while True:
        rows, width = multiple(rng, 256, 262144, 8), multiple(rng, 64, most_width, 8)
        if 1e5 < rows * width < 3e8:
            return rows, width


def normalisation(rng, precision):
    dtype = DTYPES[precision]
    kind = rng.choice(["batch_norm", "batch_norm", "layer_norm", "rms_norm", "group_norm"])
    if kind in ("batch_norm", "group_norm"):
        n, c, h = image(rng)
        weights = torch.float32 if kind == "batch_norm" else dtype

        def inputs():
            return [randn(n, c, h, h, dtype=dtype, channels_last=True), randn(c, dtype=weights), randn(c, dtype=weights)]

        if kind == "batch_norm":
            means, variances = torch.zeros(c, device=DEVICE), torch.ones(c, device=DEVICE)
            function = lambda x, w, b: F.batch_norm(x, means, variances, w, b, True)
        else:
            groups = 32 if c % 32 == 0 else 8
            function = lambda x, w, b: F.group_norm(x, groups, w, b)
        return differentiable(kind, precision, function, inputs, n=n, c=c, h=h, w=h)
    rows, width = lines(rng)
    if kind == "layer_norm":
        return differentiable(kind, precision, lambda x, w, b: F.layer_norm(x, (width,), w, b),
                              lambda: [randn(rows, width, dtype=dtype), randn(width, dtype=dtype), randn(width, dtype=dtype)],
                              rows=rows, width=width)
    return differentiable(kind, precision, lambda x, w: F.rms_norm(x, (width,), w),
                          lambda: [randn(rows, width, dtype=dtype), randn(width, dtype=dtype)], rows=rows, width=width)


def pooling(rng, precision):
    dtype = DTYPES[precision]
    kind = rng.choice(["max_pool", "max_pool", "avg_pool", "global_avg_pool"])
    n, c, h = image(rng)
    kernel, stride = rng.choice([(3, 2), (2, 2), (3, 1)])
    inputs = lambda: [randn(n, c, h, h, dtype=dtype, channels_last=True)]
    if kind == "global_avg_pool":
        return differentiable(kind, precision, lambda x: F.adaptive_avg_pool2d(x, 1), inputs, n=n, c=c, h=h, w=h)
    function = F.max_pool2d if kind == "max_pool" else F.avg_pool2d
    return differentiable(kind, precision, lambda x: function(x, kernel, stride, kernel // 2 if kernel == 3 else 0),
                          inputs, n=n, c=c, h=h, w=h, r=kernel, stride=stride)


def elementwise(rng, precision):
    dtype = DTYPES[precision]
    size = log_uniform(rng, 2e5, 3e8) // 1024 * 1024
    name = rng.choice(["add", "relu", "gelu", "silu", "mul", "dropout", "cast_up", "cast_down", "copy"])
    one = lambda: [randn(size, dtype=dtype)]
    two = lambda: [randn(size, dtype=dtype), randn(size, dtype=dtype)]
    if name == "add":
        return Case(name, precision, two, {"forward": torch.add}, size=size)
    if name in ("cast_up", "cast_down", "copy"):
        to = {"cast_up": torch.float32, "cast_down": torch.bfloat16, "copy": dtype}[name]
        source = {"cast_up": torch.bfloat16, "cast_down": torch.float32, "copy": dtype}[name]
        precision = "bf16" if name != "copy" else precision
        return Case(name, precision, lambda: [randn(size, dtype=source)],
                    {"forward": lambda x: x.to(to, copy=True)}, size=size)
    if name == "dropout":
        return differentiable(name, precision, lambda x: F.dropout(x, 0.1, True), one, size=size)
    if name == "mul":
        return differentiable(name, precision, torch.mul, two, size=size)
    return differentiable(name, precision, getattr(F, name), one, size=size)


def by_lines(rng, precision):
    dtype = DTYPES[precision]
    name = rng.choice(["softmax", "cross_entropy", "bias", "sum_rows", "embedding", "transpose"])
    if name == "cross_entropy":
        while True:
            rows, width = multiple(rng, 64, 32768, 8), log_uniform(rng, 1000, 150000)
            if rows * width < 4e8:
                break
        return differentiable(name, precision, lambda x, t: F.cross_entropy(x.float(), t),
                              lambda: [randn(rows, width, dtype=dtype), torch.randint(width, (rows,), device=DEVICE)],
                              rows=rows, width=width)
    if name == "embedding":
        rows, width, words = multiple(rng, 256, 65536, 8), multiple(rng, 256, 8192, 64), log_uniform(rng, 1000, 150000)
        if rows * width > 3e8 or words * width > 6e8:
            rows, width, words = 8192, 1024, words
        return differentiable(name, precision, lambda w, t: F.embedding(t, w),
                              lambda: [randn(words, width, dtype=dtype), torch.randint(words, (rows,), device=DEVICE)],
                              rows=rows, width=width, words=words)
    if name == "transpose":
        b, tokens, heads, width = rng.choice([2, 4, 8, 16]), rng.choice([128, 512, 1024, 2048]), rng.choice([8, 12, 16, 32]), rng.choice([64, 128])
        return Case(name, precision, lambda: [randn(b, heads, tokens, width, dtype=dtype)],
                    {"forward": lambda x: x.transpose(1, 2).contiguous()}, b=b, tokens=tokens, heads=heads, width=width)
    if name in ("bias", "sum_rows"):
        if rng.random() < 0.5:
            n, c, h = image(rng)
            make = lambda: [randn(n, c, h, h, dtype=dtype, channels_last=True), randn(c, dtype=dtype)]
            call = (lambda x, b: x + b[:, None, None]) if name == "bias" else (lambda x, b: x.sum((0, 2, 3)))
            return Case(name, precision, make, {"forward": call}, n=n, c=c, h=h, w=h)
        rows, width = lines(rng)
        make = lambda: [randn(rows, width, dtype=dtype), randn(width, dtype=dtype)]
        return Case(name, precision, make,
                    {"forward": torch.add if name == "bias" else (lambda x, b: x.sum(0))}, rows=rows, width=width)
    rows, width = lines(rng, 8192)
    return differentiable(name, precision, lambda x: F.softmax(x, -1), lambda: [randn(rows, width, dtype=dtype)],
                          rows=rows, width=width)


def concatenation(rng, precision):
    dtype = DTYPES[precision]
    n, c, h = image(rng)
    parts = rng.choice([2, 3, 4])
    return differentiable("cat", precision, lambda *xs: torch.cat(xs, 1),
                          lambda: [randn(n, max(8, c // parts), h, h, dtype=dtype, channels_last=True) for _ in range(parts)],
                          n=n, c=max(8, c // parts) * parts, h=h, w=h, parts=parts)


def attention(rng, precision):
    dtype = DTYPES[precision]
    while True:
        b, heads, width = rng.choice([1, 2, 4, 8, 16, 32]), rng.choice([4, 8, 12, 16, 32]), rng.choice([64, 64, 128])
        tokens, causal = rng.choice([128, 197, 256, 512, 1024, 2048, 4096]), rng.random() < 0.5
        if 1e8 < b * heads * tokens * tokens * width < 4e11 and b * heads * tokens * width < 3e8:
            break
    return differentiable("attention", precision, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
                          lambda: [randn(b, heads, tokens, width, dtype=dtype) for _ in range(3)],
                          b=b, heads=heads, tokens=tokens, width=width, causal=int(causal))


def optimizer(rng, precision):
    """A step of an optimizer over matrices of 1,024 x 1,024; weights of the precision, sums in it, too."""
    dtype = DTYPES[precision]
    name = rng.choice(["sgd", "adam", "adamw_fused"])
    count = rng.choice([16, 32, 64, 128, 256])

    def make():
        weights = [torch.nn.Parameter(randn(1024, 1024, dtype=dtype)) for _ in range(count)]
        for weight in weights:
            weight.grad = randn(1024, 1024, dtype=dtype)
        if name == "sgd":
            one = torch.optim.SGD(weights, lr=1e-4, momentum=0.9)
        else:
            one = torch.optim.AdamW(weights, lr=1e-4, fused=name == "adamw_fused", foreach=name == "adam", capturable=True)
        one.step()
        return [one]

    return Case(name, precision, make, {"forward": lambda one: one.step()}, size=count * 1024 * 1024, tensors=count)


# Operator, precisions, how many draws of each.
FAMILIES = [
    (convolution, {"tf32": 220, "bf16": 220, "fp32": 50}),
    (grouped_convolution, {"tf32": 40, "bf16": 40}),
    (product, {"tf32": 90, "bf16": 140, "fp32": 50}),
    (batched_product, {"tf32": 25, "bf16": 40}),
    (normalisation, {"fp32": 90, "bf16": 90}),
    (pooling, {"fp32": 45, "bf16": 45}),
    (elementwise, {"fp32": 70, "bf16": 70}),
    (by_lines, {"fp32": 80, "bf16": 80}),
    (concatenation, {"fp32": 12, "bf16": 12}),
    (attention, {"bf16": 50, "fp32": 12}),
    (optimizer, {"fp32": 14, "bf16": 8}),
]


def input_sets(case):
    """As many sets of inputs as exceed the cache, and no more than memory allows."""
    first = case.make()
    size = sum(x.numel() * x.element_size() for x in first if isinstance(x, torch.Tensor))
    count = 1 if size == 0 else max(1, min(16, math.ceil(BEYOND_CACHE / max(1, size)), int(MOST_BYTES / max(1, size))))
    return [first] + [case.make() for _ in range(count - 1)]


def seconds_of(start, end, calls):
    return start.elapsed_time(end) / 1e3 / calls


POOL = []  # a graph that keeps the memory of all others


def captured(issue):
    """As torch.cuda.graph, which empties the allocator's cache each time."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    graph.capture_begin(*(one.pool() for one in POOL))
    try:
        issue()
    finally:
        graph.capture_end()
    if not POOL:
        POOL.append(graph)
    return graph


def timed(call, sets):
    """Seconds of one call: sorted times of runs, and how they were measured."""
    if DEVICE == "cpu":  # to try this program without a GPU
        call(*sets[0])
        return [0.0], "none"
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for inputs in sets[:2]:
        call(*inputs)
    start.record()
    call(*sets[-1])
    end.record()
    end.synchronize()
    once = max(2e-6, seconds_of(start, end, 1))
    calls = max(2, min(100, math.ceil(WINDOW_S / once)))
    order = list(itertools.islice(itertools.cycle(sets), calls))

    def issue():
        for inputs in order:
            call(*inputs)

    try:
        run, method = captured(issue).replay, "graph"
    except Exception:
        torch.cuda.synchronize()
        run, method = issue, "events"
    run()
    times = []
    for _ in range(RUNS):
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(seconds_of(start, end, calls))
    return sorted(times), method


def cases(seed, only):
    rng = random.Random(seed)
    for family, precisions in FAMILIES:
        for precision, count in precisions.items():
            for number in range(count):
                if not only or family.__name__ in only:
                    yield (number + rng.random()) / count, family, precision, rng.random()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("-o", dest="out", required=True)
    options = parser.parse_args()
    began = time.monotonic()
    drawn = sorted(cases(options.seed, [w for w in options.only.split(",") if w]), key=lambda case: case[0])
    torch.manual_seed(options.seed)
    done, failed = 0, 0
    with open(options.out, "w") as file:
        card = torch.cuda.get_device_name() if DEVICE == "cuda" else "no GPU"
        print(f"# PyTorch {torch.__version__}; cuDNN {torch.backends.cudnn.version()}; on {card}", file=file)
        print("op,pass,precision,shape,median_s,low_s,high_s,method", file=file)
        stream = torch.cuda.Stream() if DEVICE == "cuda" else None
        with torch.cuda.stream(stream) if stream else torch.no_grad():
            for _, family, precision, draw in drawn:
                if time.monotonic() - began > options.seconds:
                    break
                torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
                try:
                    with torch.enable_grad():
                        case = family(random.Random(draw), precision)
                        sets = input_sets(case)
                        for name, call in case.passes.items():
                            times, method = timed(call, sets)
                            low, median, high = times[0], times[len(times) // 2], times[-1]
                            print(f"{case.op},{name},{case.precision},{case.words()},{median:.5g},{low:.5g},"
                                  f"{high:.5g},{method}", file=file, flush=True)
                            done += 1
                except Exception as error:
                    failed += 1
                    words = " ".join(f"{type(error).__name__}: {error}".split())[:200]
                    print(f"{family.__name__} {precision}: {words}", file=sys.stderr)
                    if DEVICE == "cuda":
                        torch.cuda.empty_cache()
                sets = case = None
    print(f"{done} rows, {failed} failed, {time.monotonic() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
