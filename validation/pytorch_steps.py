#!/usr/bin/env python3
"""Training steps of the campaign's workloads in PyTorch, for validation/hw_campaign.

    pytorch_steps.py [--kernels FILE] [--modes eager,compiled] [--compile NAME,...]
                     NAME,NETWORK,BATCH,PRECISION,TOKENS ...

A row of CSV for each workload and mode goes to standard output as soon as it is known:

    workload,mode,batch,precision,median_s,low_s,high_s,steps,kernels_s,launches,host_s,note

NETWORK is a model of torchvision, gpt:layers=..,hidden=..,heads=.., or a config.json of Hugging Face
(bert-base is a model of our own); TOKENS is the length of its samples, 0 for the usual one.

mode is eager or compiled (torch.compile), with `autocast` where a 16-bit workload keeps its weights
in fp32, as automatic mixed precision does, or `cast` where the weights are 16 bits, too. A step is
zero_grad, forward, loss, backward and SGD with momentum; steps follow one another as in training,
with a CUDA event between them. tf32 workloads allow tf32 in products and convolutions, images lie
channels last. kernels_s is how long the GPU's kernels took, by PyTorch's profiler: where steps take
longer, the GPU waited for the host: host_s is how long the host takes to issue a step to an idle GPU, launches how
many kernels and copies that makes. What fails is a row with a note. --compile limits compiled rows. --kernels writes what those
kernels were, from a thousandth of their time on: workload, mode, kernel, launches and seconds in a
step.
"""
import argparse
import json
import re
import time

import torch
import torch.nn.functional as F
from torch import nn

WARM, STEPS = 8, 20


class Attention(nn.Module):
    def __init__(self, hidden, heads, causal, dropout):
        super().__init__()
        self.heads, self.causal, self.rate = heads, causal, dropout
        self.query, self.key, self.value, self.out = (nn.Linear(hidden, hidden) for _ in range(4))

    def forward(self, x):
        batch, tokens, hidden = x.shape
        split = lambda y: y.view(batch, tokens, self.heads, -1).transpose(1, 2)
        y = F.scaled_dot_product_attention(
            split(self.query(x)), split(self.key(x)), split(self.value(x)),
            dropout_p=self.rate, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, hidden))


class Block(nn.Module):
    """A transformer block, normalised before its parts (GPT-2) or after them (BERT)."""

    def __init__(self, hidden, heads, causal, before, dropout=0.1):
        super().__init__()
        self.before = before
        self.attention = Attention(hidden, heads, causal, dropout)
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.drop = nn.Dropout(dropout)

    def feed_forward(self, x):
        return self.drop(self.down(F.gelu(self.up(x))))

    def forward(self, x):
        if self.before:
            x = x + self.drop(self.attention(self.norm1(x)))
            return x + self.feed_forward(self.norm2(x))
        x = self.norm1(x + self.drop(self.attention(x)))
        return self.norm2(x + self.feed_forward(x))


class Gpt(nn.Module):
    """A loss for every token; the table scores the tokens, too."""

    def __init__(self, layers, hidden, heads, tokens=1024, vocabulary=50257):
        super().__init__()
        self.table, self.places = nn.Embedding(vocabulary, hidden), nn.Embedding(tokens, hidden)
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.Sequential(*(Block(hidden, heads, True, True) for _ in range(layers)))
        self.norm = nn.LayerNorm(hidden)
        self.shape, self.classes = (tokens,), vocabulary

    def forward(self, ids):
        x = self.drop(self.table(ids) + self.places.weight)
        return F.linear(self.norm(self.blocks(x)), self.table.weight)


class Bert(nn.Module):
    """BERT-Base, the loss on the pooler's output."""

    def __init__(self, layers=12, hidden=768, heads=12, tokens=512, vocabulary=30522):
        super().__init__()
        self.table, self.places = nn.Embedding(vocabulary, hidden), nn.Embedding(tokens, hidden)
        self.kinds = nn.Embedding(2, hidden)
        self.norm, self.drop = nn.LayerNorm(hidden), nn.Dropout(0.1)
        self.blocks = nn.Sequential(*(Block(hidden, heads, False, False) for _ in range(layers)))
        self.pooler = nn.Linear(hidden, hidden)
        self.shape, self.classes, self.ids = (tokens,), hidden, vocabulary

    def forward(self, ids):
        x = self.table(ids) + self.places.weight + self.kinds(torch.zeros_like(ids))
        x = self.blocks(self.drop(self.norm(x)))
        return torch.tanh(self.pooler(x[:, 0]))


class Scores(nn.Module):
    """A model of Hugging Face: tokens or images to scores."""

    def __init__(self, path, tokens):
        super().__init__()
        import transformers

        with open(path) as file:
            values = json.load(file)
        config = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
        config.use_cache = False  # of keys and values, for generating text
        images = hasattr(config, "image_size")
        kind = transformers.AutoModelForImageClassification if images else (
            transformers.AutoModelForCausalLM if "ForCausalLM" in str(config.architectures) else transformers.AutoModel)
        self.model = kind.from_config(config, attn_implementation="sdpa")
        self.edge = config.image_size if images else None
        if not images:
            self.shape, self.ids = (tokens or 512,), config.vocab_size
            self.pools = kind is transformers.AutoModel
            self.classes = config.hidden_size if self.pools else config.vocab_size

    def forward(self, x):
        y = self.model(x)
        return y.pooler_output if not self.edge and self.pools else y.logits


def network(text, tokens):
    """The model and, for images, the edge of its input."""
    if text.startswith("gpt:"):
        options = dict(pair.split("=") for pair in text[4:].split(","))
        sizes = (int(options[key]) for key in ("layers", "hidden", "heads"))
        return Gpt(*sizes, tokens=tokens or 1024), None
    if re.search(r"bert-base[^/]*\.json$", text):
        return Bert(), None
    if text.endswith(".json"):
        model = Scores(text, tokens)
        return model, model.edge
    import torchvision.models as models

    options = {"aux_logits": False, "init_weights": False} if text in ("inception_v3", "googlenet") else {}
    return getattr(models, text)(**options), 299 if text == "inception_v3" else 224


def steps(text, batch, precision, tokens, cast, compiled):
    """Times of steps in seconds, sorted, the host's, and kernels_of() one."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    with torch.device("cuda"):
        model, edge = network(text, tokens)
    if edge:
        model = model.to(memory_format=torch.channels_last)
        inputs = torch.randn(batch, 3, edge, edge, device="cuda")
        inputs = inputs.to(memory_format=torch.channels_last)
        truth = torch.randint(1000, (batch,), device="cuda")
    else:
        inputs = torch.randint(getattr(model, "ids", model.classes), (batch, *model.shape),
                               device="cuda")
        pools = isinstance(model, Bert) or getattr(model, "pools", False)
        lines = (batch,) if pools else (batch, *model.shape)
        truth = torch.randint(model.classes, lines, device="cuda")
    if cast:
        model = model.to(torch.bfloat16)
        inputs = inputs.to(torch.bfloat16) if edge else inputs
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    run = torch.compile(model) if compiled else model
    autocast = precision == "bf16" and not cast

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            scores = run(inputs)
            loss = F.cross_entropy(scores.flatten(0, -2), truth.flatten())
        loss.backward()
        optimizer.step()

    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(STEPS + 1)]
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    torch.cuda.synchronize()
    times = sorted(a.elapsed_time(b) / 1e3 for a, b in zip(events, events[1:]))
    issued = []
    for _ in range(5):
        torch.cuda.synchronize()
        began = time.perf_counter()
        step()
        issued.append(time.perf_counter() - began)
    torch.cuda.synchronize()
    return times, sorted(issued)[len(issued) // 2], kernels_of(step)


def kernels_of(step, steps=3):
    """Launches and seconds in a step, by the kernel's name."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    found = {}
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            count, time = found.get(event.name, (0, 0.0))
            found[event.name] = (count + 1 / steps, time + event.time_range.elapsed_us() / 1e6 / steps)
    return found


def write(found, busy, start, file):
    for kernel, (count, time) in sorted(found.items(), key=lambda item: -item[1][1]):
        if time > busy / 1000:
            words = " ".join(kernel.split()).replace(",", ";")[:120]
            print(f"{start},{words},{count:.4g},{time:.4g}", file=file, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workloads", nargs="+")
    parser.add_argument("--kernels")
    parser.add_argument("--modes", default="eager,compiled")
    parser.add_argument("--compile", default="")
    options = parser.parse_args()
    kernel_file = open(options.kernels, "w") if options.kernels else None
    print(f"# PyTorch {torch.__version__} on {torch.cuda.get_device_name()}", flush=True)
    print("workload,mode,batch,precision,median_s,low_s,high_s,steps,kernels_s,launches,host_s,note", flush=True)
    modes = [(name == "compiled", cast) for name in options.modes.split(",") for cast in (False, True)]
    for compiled, cast in modes:
        for workload in options.workloads:
            name, rest = workload.split(",", 1)
            text, batch, precision, tokens = rest.rsplit(",", 3)
            if cast and precision != "bf16" or compiled and options.compile and name not in options.compile.split(","):
                continue
            mode = "compiled" if compiled else "eager"
            if precision == "bf16":
                mode += " cast" if cast else " autocast"
            try:
                times, host, found = steps(text, int(batch), precision, int(tokens), cast, compiled)
                busy, launches = sum(time for _, time in found.values()), sum(count for count, _ in found.values())
                if kernel_file:
                    write(found, busy, f"{name},{mode}", kernel_file)
                low, median, high = times[0], times[len(times) // 2], times[-1]
                numbers = f"{median:.6g},{low:.6g},{high:.6g},{len(times)},{busy:.6g},{launches:.0f},{host:.4g},"
            except Exception as error:  # a row for every workload, whatever goes wrong
                words = " ".join(f"{type(error).__name__}: {error}".split())
                numbers = f",,,,,,,{words[:160].replace(',', ';')}"
            print(f"{name},{mode},{batch},{precision},{numbers}", flush=True)
            torch.compiler.reset()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
