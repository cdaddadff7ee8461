"""One update: what accumulation, penalty, clipping, schedule, precision and compilation do to it."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.precision import MixedPrecision
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from prune_lab.data.batching import Batch, collate
from prune_lab.data.datamodule import Window
from prune_lab.gates.penalty import L0Penalty
from prune_lab.heads import HeadMask
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.surgery import prune_heads
from prune_lab.training.module import TranslationModule
from prune_lab.training.trainer import quiet_lightning


class Windows(IterableDataset[Window]):
    def __init__(self, windows: Sequence[Window]) -> None:
        self.windows = windows

    def __iter__(self):
        return iter(self.windows)


class Gradients(pl.Callback):
    """Keeps the gradients of every update as the optimiser gets them, and the learning rates by group."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Tensor]] = []
        self.rates: list[dict[str, float]] = []

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        named = pl_module.model.named_parameters()
        self.seen.append({name: p.grad.clone() for name, p in named if p.grad is not None})
        self.rates.append({group["name"]: group["lr"] for group in optimizer.param_groups})


def window_of(*batches: Batch) -> Window:
    return Window(batches=list(batches), num_target_tokens=sum(batch.num_target_tokens for batch in batches))


def run(
    model: Transformer, windows: Sequence[Window], *, trainer: dict[str, Any] | None = None, **settings: Any
) -> Gradients:
    quiet_lightning()
    gradients = Gradients()
    fixed = {
        "optimizer": partial(torch.optim.SGD, lr=0.0),
        "schedule": lambda update: 1.0,
        "penalty": None,
        "gate_learning_rate": 0.05,
        "label_smoothing": 0.1,
        "clip_norm": 0.0,
        "average_decay": None,
        "gate_seed": 0,
        "log_every": 50,
        "compile_options": None,
        "products": "float32",
        "parts": 1,
    }
    module = TranslationModule(model, **{**fixed, **settings})
    lightning = pl.Trainer(
        max_steps=len(windows),
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[gradients],
        **(trainer or {}),
    )
    lightning.fit(module, DataLoader(Windows(windows), batch_size=None))
    return gradients


def assert_same_gradients(one: dict[str, Tensor], two: dict[str, Tensor], tolerance: float) -> None:
    """Equal relative to the largest entry of each tensor. A key bias is left out: its gradient is rounding alone."""
    assert one.keys() == two.keys()
    for name, gradient in one.items():
        if not name.endswith("key.bias"):
            allowed = tolerance * float(gradient.abs().max())
            torch.testing.assert_close(
                two[name], gradient, rtol=0, atol=allowed, msg=lambda text, n=name: f"{n}: {text}"
            )


def example(length: int, seed: int = 0) -> tuple[list[int], list[int]]:
    generator = torch.Generator().manual_seed(1000 * seed + length)
    source, target = (torch.randint(4, 41, (length,), generator=generator).tolist() for _ in range(2))
    return [*(4 + token % 33 for token in source), 2], [1, *target, 2]


@pytest.fixture
def build(small_model) -> Callable[..., Transformer]:
    def model(**settings: Any) -> Transformer:
        built = small_model(**settings)
        built.add_gates("hard_concrete")
        return built

    return model


def test_c8_two_batches_give_the_gradient_of_one(small_model):
    short, long = example(11), example(101)
    together = window_of(collate([short, long]))
    apart = window_of(collate([short]), collate([long]))
    (one,) = run(small_model(), [together]).seen
    (two,) = run(small_model(), [apart]).seen
    assert_same_gradients(one, two, 1e-5)


def test_the_gradient_is_that_of_the_mean_over_target_tokens(small_model):
    batch = collate([example(11), example(30)])
    (seen,) = run(small_model(), [window_of(batch)], label_smoothing=0.1).seen
    model = small_model()
    logits = model(batch.source_ids, batch.target_ids[:, :-1])
    torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), batch.target_ids[:, 1:].flatten(), ignore_index=0, label_smoothing=0.1
    ).backward()
    expected = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert_same_gradients(seen, expected, 1e-5)


@pytest.mark.parametrize("accumulate", [1, 2, 4])
def test_c8_the_penalty_enters_once_whatever_the_accumulation(build, accumulate):
    windows = [window_of(*(collate([example(11, seed)]) for seed in range(accumulate)))]
    (without,) = run(build(), windows).seen
    (with_penalty,) = run(build(), windows, penalty=L0Penalty(weight=0.3)).seen
    for site, gate in build().gates().items():
        p_open = gate.p_open().detach()
        name = next(key for key in without if key.endswith("log_a") and key.startswith(place_of(site)))
        torch.testing.assert_close(
            with_penalty[name] - without[name], 0.3 * p_open * (1 - p_open), rtol=1e-4, atol=1e-6
        )


def place_of(site: str) -> str:
    stack, layer, kind = site.split(".")
    return f"{stack}.layers.{layer}.{kind}_attention."


def test_b1_weight_0_adds_no_gradient_to_the_gates(build):
    windows = [window_of(collate([example(11)]))]
    (without,) = run(build(), windows).seen
    (with_penalty,) = run(build(), windows, penalty=L0Penalty(weight=0)).seen
    torch.testing.assert_close(with_penalty, without, rtol=0, atol=0)


def test_the_penalty_warms_up_with_the_updates(build):
    window = window_of(collate([example(11)]))
    penalty = L0Penalty(weight=0.3, warmup_updates=2)
    without = run(build(), [window] * 4).seen
    with_penalty = run(build(), [window] * 4, penalty=penalty).seen
    name = next(name for name in without[0] if name.endswith("log_a"))
    added = [float((a[name] - b[name]).sum()) for a, b in zip(with_penalty, without, strict=True)]
    assert [value / added[-1] for value in added] == pytest.approx([1 / 3, 2 / 3, 1, 1], rel=1e-3)


def changes(
    model: Transformer, windows: Sequence[Window], *, fused: bool = False, **settings: Any
) -> dict[str, Tensor]:
    """What plain gradient descent at a rate of 1 subtracts from each tensor: the gradient as it is applied."""
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = partial(torch.optim.SGD, lr=1.0, fused=fused)
    run(model, windows, optimizer=optimizer, gate_learning_rate=1.0, **settings)
    return {
        name: before[name] - parameter.detach()
        for name, parameter in model.named_parameters()
        if not name.endswith("key.bias")
    }


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_clipping_bounds_the_weights_and_leaves_the_gates(build, scaled, fused):
    windows = [window_of(collate([example(11), example(30)]))]
    penalty = L0Penalty(weight=5.0)
    free = changes(build(), windows, penalty=penalty)
    # In 16-bit training gradients are scaled by a large number until shortly before they are applied.
    trainer = {"plugins": [MixedPrecision("16-mixed", "cpu")]} if scaled else None
    clipped = changes(build(), windows, penalty=penalty, clip_norm=0.01, trainer=trainer, fused=fused)
    gates = {name for name in free if name.endswith("log_a")}
    norm = torch.stack([change.norm() for name, change in free.items() if name not in gates]).norm()
    assert norm > 0.02
    for name, change in clipped.items():
        expected = free[name] if name in gates else free[name] * (0.01 / norm)
        assert (change - expected).norm() < (0.05 if scaled else 0.01) * expected.norm() + 1e-6, name


def test_the_schedule_moves_every_rate_but_that_of_the_gates(build):
    window = window_of(collate([example(11)]))
    gradients = run(
        build(),
        [window] * 3,
        optimizer=partial(torch.optim.Adam, lr=0.01),
        schedule=lambda update: 1 / (update + 1),
        gate_learning_rate=0.07,
    )
    assert [rates["gates"] for rates in gradients.rates] == [0.07] * 3
    for group in ("decayed", "plain"):
        assert [rates[group] for rates in gradients.rates] == pytest.approx([0.01, 0.01 / 2, 0.01 / 3])


def test_a_model_in_evaluation_mode_is_trained_in_training_mode(build):
    windows = [window_of(collate([example(11)]))] * 2
    model, prepared = build(dropout=0.3).eval(), build(dropout=0.3).train()
    torch.manual_seed(4)
    seen = run(model, windows).seen
    torch.manual_seed(4)
    torch.testing.assert_close(seen, run(prepared, windows).seen, rtol=0, atol=0)
    log_a = next(name for name in seen[0] if name.endswith("log_a"))
    assert not torch.equal(seen[0][log_a], seen[1][log_a])


def test_a_label_beyond_the_batch_does_not_matter(small_model, sources, targets):
    plain = Batch(source_ids=sources([5, 9]), target_ids=targets([7, 4]))
    padded = Batch(source_ids=sources([5, 9], extra_padding=6), target_ids=targets([7, 4], extra_padding=5))
    (one,) = run(small_model(), [window_of(plain)]).seen
    (two,) = run(small_model(), [window_of(padded)]).seen
    assert_same_gradients(one, two, 1e-5)


def test_bf16_mixed_keeps_weights_and_gradients_in_float32(build):
    windows = [window_of(collate([example(11), example(30)]))] * 2
    (exact, *_), (mixed, *_) = (
        run(build(), windows, trainer={"precision": precision}).seen for precision in ("32-true", "bf16-mixed")
    )
    assert {gradient.dtype for gradient in mixed.values()} == {torch.float32}
    off = {name: float((mixed[name] - exact[name]).norm() / exact[name].norm()) for name in exact}
    assert max(share for name, share in off.items() if not name.endswith("key.bias")) < 0.1


def test_a11_one_update_changes_every_trainable_tensor_after_surgery(build):
    mask = HeadMask.removing({"encoder.0.self": [1], "decoder.0.self": range(4), "decoder.1.cross": [0, 1, 2]}, build())
    model = prune_heads(build(), mask)
    before = {
        name: parameter.detach().clone() for name, parameter in model.named_parameters() if parameter.requires_grad
    }
    windows = [window_of(collate([example(length) for length in (5, 11, 20)]))]
    run(
        model,
        windows,
        optimizer=partial(torch.optim.SGD, lr=1.0),
        penalty=L0Penalty(weight=0.1),
    )
    # A key bias shifts all scores of a query alike, which softmax does not see.
    unchanged = {name for name, old in before.items() if torch.equal(old, dict(model.named_parameters())[name])}
    assert {name for name in unchanged if not name.endswith("key.bias")} == set()
    assert len(before) > 40
    assert model.gates()["decoder.1.cross"].log_a.shape == (1,)


def test_all_heads_gone_still_trains(build):
    model = build()
    model = prune_heads(model, HeadMask.keeping({site: [] for site in model.sites()}, model))
    (seen,) = run(model, [window_of(collate([example(11)]))], penalty=L0Penalty(weight=0.1)).seen
    assert all(torch.isfinite(gradient).all() for gradient in seen.values())


def test_a12_compiled_training_gives_the_same_gradients(build):
    windows = [window_of(collate([example(11), example(30)]))]
    layers = {"encoder_layers": 1, "decoder_layers": 1}
    (plain,) = run(build(**layers), windows).seen
    (compiled,) = run(build(**layers), windows, compile_options={"backend": "aot_eager"}).seen
    assert_same_gradients(plain, compiled, 1e-5)
