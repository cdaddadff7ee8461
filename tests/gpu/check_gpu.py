"""On a machine with a GPU: are models the same functions there, does training wait for it, and how fast is it?

    python tests/gpu/check_gpu.py

takes at most 8 minutes, prints what it measures, and fails with an AssertionError. Without a GPU it says so and ends.
`--rehearse` runs the same code with tiny models on the CPU, where its speeds mean nothing.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from prune_lab.data.batching import Batch, collate
from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation.flops import count_flops
from prune_lab.gates.penalty import L0Penalty
from prune_lab.heads import HeadMask
from prune_lab.model.config import ModelConfig
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.surgery import mask_heads, prune_heads
from prune_lab.training.schedules import constant
from prune_lab.training.settings import FitSettings
from prune_lab.training.training_pass import TrainingPass

BASE = {"d_model": 512, "d_feed_forward": 2048, "encoder_layers": 6, "decoder_layers": 6}
SMALL = {"d_model": 64, "d_feed_forward": 96, "encoder_layers": 2, "decoder_layers": 2}
KINDS = (
    {"norm": "pre", "positions": "sinusoidal", "activation": "relu"},
    {"norm": "post", "positions": "learned", "activation": "gelu"},
    {"norm": "pre", "positions": "rotary", "activation": "swiglu"},
)


def model_of(vocabulary: int, seed: int = 0, **settings: Any) -> Transformer:
    """An untrained model; queries and keys are scaled up, so that attention is not flat."""
    torch.manual_seed(seed)
    sizes = {"source_vocab_size": vocabulary, "target_vocab_size": vocabulary, "share_embeddings": True}
    model = Transformer(ModelConfig(**{**sizes, **settings}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "attention" in name and name.endswith("weight"):
                parameter.mul_(2)
    return model.eval()


def batch_of(sentences: int, longest: int, vocabulary: int, seed: int = 0) -> Batch:
    """Random sentences of two thirds of the longest length and more."""
    generator = torch.Generator().manual_seed(seed)

    def ids(length: int) -> list[int]:
        return torch.randint(4, vocabulary, (length,), generator=generator).tolist()

    lengths = torch.randint(2 * longest // 3, longest - 1, (sentences, 2), generator=generator).tolist()
    return collate([([*ids(source), 2], [1, *ids(target), 2]) for source, target in lengths])


def check_equality(device: torch.device) -> None:
    """Outputs, losses, gradients and hypotheses in float32, masked and pruned, on the device as on the CPU."""
    torch.backends.cuda.matmul.allow_tf32 = False
    batch = batch_of(12, 20, 97)
    for settings in KINDS:
        model = model_of(97, **SMALL, **settings)
        there = model.copy().to(device)
        mask = HeadMask.removing({"encoder.0.self": [0, 2], "decoder.1.cross": list(range(8))}, model)
        variants = {
            "whole": (model, there),
            "masked": (mask_heads(model, mask), mask_heads(there, mask)),
            "pruned": (mask_heads(model, mask), prune_heads(there, mask)),
        }
        for name, (here, other) in variants.items():
            compare_outputs(here, other, batch, f"{settings}, {name}")
        compare_searches(model, there, batch)
    print("equal to the CPU: logits, gradients, beam search; masked equals pruned")


def compare_outputs(here: Transformer, there: Transformer, batch: Batch, what: str) -> None:
    """Logits, and the gradients of their sum of squares."""
    device = there.output_weight.device
    found = []
    for model, each in ((here, batch), (there, batch.to(device))):
        model.zero_grad()
        logits = model(each.source_ids, each.target_ids[:, :-1])
        logits.square().mean().backward()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        found.append((logits.detach().cpu(), {name: gradient.cpu() for name, gradient in gradients.items()}))
    (ours, our_gradients), (theirs, their_gradients) = found
    torch.testing.assert_close(theirs, ours, rtol=1e-4, atol=1e-4, msg=lambda text: f"{what}: {text}")
    # A pruned model has smaller attention blocks, and none where all heads are gone.
    is_pruned = len({sum(len(site.numbers) for site in each.attention_sites().values()) for each in (here, there)}) > 1
    compared = {name for name in our_gradients if not is_pruned or "attention" not in name}
    assert compared and (is_pruned or their_gradients.keys() == compared), f"{what}: gradients of other weights"
    for name in compared & their_gradients.keys():
        torch.testing.assert_close(their_gradients[name], our_gradients[name], rtol=1e-3, atol=1e-5)


def compare_searches(here: Transformer, there: Transformer, batch: Batch) -> None:
    """Hypotheses of greedy and beam search."""
    device = there.output_weight.device
    for beam_size in (1, 5):
        options = DecodingOptions(beam_size=beam_size, max_length_b=1.0)
        ours, theirs = here.search(batch.source_ids, options), there.search(batch.source_ids.to(device), options)
        assert ours.ids == theirs.ids, f"beam {beam_size}: other hypotheses than on the CPU"


@contextmanager
def no_waiting(device: torch.device) -> Iterator[None]:
    """Inside, an operation that makes the host wait for the GPU is an error."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def check_no_waiting(device: torch.device, sizes: dict[str, Any]) -> None:
    """An update with gates, penalty and clipping never asks the device for a value."""
    model = model_of(1000, **sizes).to(device)
    model.add_gates("hard_concrete")
    update = training_pass(model, [batch_of(8, 16, 1000)])
    update()
    update()
    wait(device)
    with no_waiting(device):
        update()
    print("an update with gates does not wait for the device")


def training_pass(model: Transformer, batches: list[Batch], **settings: Any) -> TrainingPass:
    """As `trainer=gpu` trains: bf16-mixed with the fused optimiser."""
    penalty = L0Penalty(weight=0.01) if model.gates() else None
    optimizer = partial(torch.optim.Adam, lr=1e-4, fused=True)
    fixed = FitSettings(optimizer=optimizer, schedule=constant, trainer={}, **settings)
    return TrainingPass(model, batches, fixed, penalty=penalty, autocast=torch.bfloat16)


def measure_training(device: torch.device, sizes: dict[str, Any], tokens: int, vocabulary: int) -> None:
    """Target tokens a second, and the share of the device's matrix products that they are."""
    longest = 32
    batches = [batch_of(tokens // longest, longest, vocabulary, seed) for seed in range(4)]
    peak = peak_flops(device)
    model = model_of(vocabulary, dropout=0.1, **sizes).to(device)
    moved = [batch.to(device) for batch in batches]

    def forward() -> None:
        with torch.no_grad():
            for batch in moved:
                model(batch.source_ids, batch.target_ids[:, :-1])

    flops = 3 * count_flops(model, forward).total  # the backward pass is twice the forward one
    gated = model.copy()
    gated.add_gates("hard_concrete")
    passes = {"plain": training_pass(model, batches), "with gates": training_pass(gated, batches)}
    if device.type == "cuda":
        passes["compiled"] = training_pass(model, batches, compile_options={"dynamic": True})
    for name, each in passes.items():
        seconds = median_time(each, device, repeats=5)
        speed, share = each.num_target_tokens / seconds, flops / seconds / peak
        print(f"training, {name}: {speed:,.0f} target tokens/s, {share:.0%} of {peak / 1e12:.1f} TFLOP/s (bfloat16)")


def measure_decoding(device: torch.device, sizes: dict[str, Any], sentences: int, vocabulary: int) -> None:
    """Sentences a second, beam 5 and greedy; an untrained model goes on to its longest length."""
    model = model_of(vocabulary, **sizes).to(device)
    source_ids = batch_of(sentences, 32, vocabulary).source_ids.to(device)
    for beam_size in (1, 5):
        options = DecodingOptions(beam_size=beam_size, max_length_a=0, max_length_b=1.0)
        lengths = [len(ids) for ids in model.search(source_ids, options).ids]
        seconds = median_time(lambda: model.search(source_ids, options), device, repeats=3)  # noqa: B023
        mean = statistics.fmean(lengths)
        print(f"decoding, beam {beam_size}: {sentences / seconds:,.1f} sentences/s of {mean:.1f} tokens, float32")


def peak_flops(device: torch.device) -> float:
    """Of one large product in bfloat16, measured: what this device can do at all."""
    size = 8192 if device.type == "cuda" else 512
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    return 2 * size**3 / median_time(lambda: left @ right, device, repeats=10)


def median_time(run: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Seconds of a call, after two that are not timed."""
    times = []
    for number in range(2 + repeats):
        wait(device)
        start = time.perf_counter()
        run()
        wait(device)
        if number >= 2:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def wait(device: torch.device) -> None:
    """Until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    """Checks, then measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rehearse", action="store_true", help="tiny models on the CPU")
    rehearse = parser.parse_args().rehearse
    if not rehearse and not torch.cuda.is_available():
        print("no GPU here, nothing to check")
        return
    device = torch.device("cpu" if rehearse else "cuda")
    print(f"torch {torch.__version__}, {'CPU' if rehearse else torch.cuda.get_device_name(device)}")
    sizes: dict[str, Any] = SMALL if rehearse else BASE
    check_equality(device)
    check_no_waiting(device, sizes)
    measure_training(device, sizes, tokens=256 if rehearse else 24_576, vocabulary=500 if rehearse else 32_000)
    measure_decoding(device, sizes, sentences=4 if rehearse else 64, vocabulary=500 if rehearse else 32_000)


if __name__ == "__main__":
    main()
