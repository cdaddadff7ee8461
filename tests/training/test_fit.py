"""Whole short runs: what comes back, what lies in the directory, and what is refused before anything is written."""

import csv
import json
import math
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from prune_lab.data.batching import EncodedCorpus
from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation.generate import translate_lines
from prune_lab.evaluation.scoring import score
from prune_lab.gates.penalty import L0Penalty
from prune_lab.training.callbacks import validation
from prune_lab.training.checkpoint import load_model, model_from_checkpoint
from prune_lab.training.fit import Seeds
from prune_lab.training.parameters import freeze
from prune_lab.training.schedules import Trapezoid


def metrics(directory) -> dict[tuple[int, str], float]:
    """The figures of metrics.csv by (update, name), each of which must be there once."""
    with (directory / "metrics.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    figures = {(int(row["update"]), row["name"]): float(row["value"]) for row in rows}
    assert len(figures) == len(rows)
    return figures


def notes(directory, name: str = "validation.jsonl") -> list[dict]:
    return [json.loads(line) for line in (directory / name).read_text(encoding="utf-8").splitlines()]


def evaluate(model, task, options) -> tuple[float, list[str]]:
    lines = translate_lines(model, task.data.validation.sources, options).lines
    return score(lines, task.data.validation.targets).bleu, lines


# What comes back


@pytest.mark.parametrize("average_decay", [None, 0.9])
@pytest.mark.parametrize("beam_size", [1, 2])
def test_c2_a_later_evaluation_finds_what_validation_found(task, train, tmp_path, average_decay, beam_size):
    options = DecodingOptions(beam_size=beam_size)
    model = task.model(dropout=0.1)
    result = train(
        model, tmp_path, max_steps=40, average_decay=average_decay, validation_decoding=options, accumulate=2
    )
    best = next(note for note in notes(tmp_path) if note["update"] == result.best_update)
    loaded = load_model(tmp_path / "best.ckpt")
    bleu, lines = evaluate(loaded, task, options)
    assert bleu == result.validation_bleu == result.best_bleu == best["bleu"] > 0
    assert "".join(f"{line}\n" for line in lines) == (tmp_path / "validation_hypotheses.txt").read_text("utf-8")
    assert best["search"] == result.validation_search == ("greedy" if beam_size == 1 else "beam 2")
    assert evaluate(result.model, task, options) == (bleu, lines)
    assert not result.model.training and result.num_updates == 40 and result.seconds > 0


def test_c2_holds_under_mixed_precision(task, train, tmp_path):
    result = train(task.model(), tmp_path, trainer={"precision": "bf16-mixed"})
    assert evaluate(load_model(tmp_path / "best.ckpt"), task, DecodingOptions(beam_size=1))[0] == result.validation_bleu
    assert {parameter.dtype for parameter in result.model.parameters()} == {torch.float32}


def test_training_learns_and_logs(task, train, tmp_path):
    result = train(task.model(), tmp_path, max_steps=60)
    figures = metrics(tmp_path)
    assert {update for update, name in figures if name == "train/nll"} == set(range(1, 61))
    assert figures[1, "train/nll"] > figures[60, "train/nll"] + 0.5
    assert figures[1, "train/nll"] == pytest.approx(math.log(task.tokenizer.target_vocab_size), abs=0.7)
    assert figures[60, "validation/nll"] == notes(tmp_path)[-1]["nll"] < 4
    assert [note["update"] for note in notes(tmp_path)] == [10, 20, 30, 40, 50, 60]
    assert result.best_update in range(10, 61, 10)
    assert all(figures[update, "train/gradient_norm"] > 0 for update in range(1, 61))


def test_logged_learning_rates_are_those_of_their_updates(task, train, tmp_path):
    schedule = Trapezoid(total_updates=10, warmup_updates=4, decay_updates=4)
    train(task.model(), tmp_path, max_steps=10, schedule=schedule, optimizer=partial(torch.optim.Adam, lr=0.01))
    figures = metrics(tmp_path)
    rates = [figures[update, "train/learning_rate"] for update in range(1, 11)]
    assert rates == pytest.approx([0.01 * schedule(update) for update in range(10)])


def test_the_average_is_what_is_validated_and_returned(task, train, tmp_path):
    result = train(task.model(), tmp_path, average_decay=0.9, keep="last")
    content = torch.load(tmp_path / "last.ckpt", weights_only=True)
    weights, average = content["state_dict"], content["prune_lab"]["average"]
    assert average["num_updates"] == 20
    for name, parameter in result.model.named_parameters():
        if parameter.requires_grad:
            torch.testing.assert_close(parameter.detach(), average[name], rtol=0, atol=0)
            assert not torch.equal(parameter, weights[f"model.{name}"])


def test_keep_last_returns_the_last_weights_and_their_score(task, train, tmp_path, monkeypatch):
    falling = iter([30.0, 20.0])
    real = validation.score
    monkeypatch.setattr(validation, "score", lambda *args, **kwargs: replace(real(*args, **kwargs), bleu=next(falling)))
    result = train(task.model(), tmp_path, keep="last")
    assert (result.validation_bleu, result.best_bleu, result.best_update, result.num_updates) == (20.0, 30.0, 10, 20)
    last, best = (model_from_checkpoint(tmp_path / name) for name in ("last.ckpt", "best.ckpt"))
    for (_, ours), (_, theirs), (name, other) in zip(
        result.model.named_parameters(), last.named_parameters(), best.named_parameters(), strict=True
    ):
        assert torch.equal(ours, theirs), name
        assert "key.bias" in name or not torch.equal(ours, other), name
    again = train(task.model(), tmp_path, keep="best")
    assert (again.validation_bleu, again.best_bleu) == (30.0, 30.0)
    assert torch.equal(again.model.source_table.weight, best.source_table.weight)


def test_d6_checkpoints_hold_plain_data(task, train, tmp_path):
    model = task.model(gated=True, dropout=0.1)
    train(
        model,
        tmp_path,
        penalty=L0Penalty(weight=0.01),
        average_decay=0.9,
        patience=3,
        schedule=Trapezoid(total_updates=20, decay_updates=5),
        optimizer=partial(torch.optim.AdamW, lr=1e-3),
    )
    # In a process where nothing but torch was imported, so that nothing can have extended its list of allowed types.
    program = "import sys, torch\nfor path in sys.argv[1:]: torch.load(path, weights_only=True)"
    paths = [tmp_path / "last.ckpt", tmp_path / "best.ckpt"]
    subprocess.run([sys.executable, "-c", program, *paths], check=True)
    for path in paths:
        content = torch.load(path, weights_only=True)
        assert content["prune_lab"]["config"]["gates"]["name"] == "hard_concrete"
        assert content["prune_lab"]["tokenizer"] == task.tokenizer.content


def test_a_trained_model_is_an_ordinary_model(task, train, tmp_path):
    model = task.model(gated=True)
    result = train(model, tmp_path, penalty=L0Penalty(weight=0.01))
    assert result.model is model
    assert all(gate.generator is None for gate in model.gates().values())
    copied = model.copy()
    model.save_pretrained(tmp_path / "export")
    options = DecodingOptions(beam_size=1)
    assert evaluate(load_model(tmp_path / "export"), task, options) == evaluate(copied, task, options)


def test_an_encoder_only_run_leaves_the_decoder_as_it_was(task, train, tmp_path):
    model = task.model(gated=False, dropout=0.1)
    model.add_gates("hard_concrete", kinds=["encoder.self"])
    freeze(model, ["decoder"])
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    result = train(model, tmp_path, penalty=L0Penalty(weight=0.1), average_decay=0.9, keep="last")
    after = result.model.state_dict()
    changed = {name.split(".")[0] for name, tensor in before.items() if not torch.equal(tensor, after[name])}
    assert changed == {"encoder"}
    moved = [name for name, tensor in before.items() if name.startswith("encoder") and "head_mask" not in name]
    assert all(not torch.equal(before[name], after[name]) for name in moved)


def test_compiled_blocks_leave_the_same_checkpoint(task, train, tmp_path):
    plain = train(task.model(), tmp_path / "plain", max_steps=1)
    model = task.model()
    model.compile(backend="eager")
    model.encoder.layers[0].compile(backend="aot_eager")
    compiled = train(model, tmp_path / "compiled", max_steps=1)
    one, two = (
        torch.load(tmp_path / name / "last.ckpt", weights_only=True)["state_dict"] for name in ("plain", "compiled")
    )
    assert one.keys() == two.keys()
    for name in one:
        if not name.endswith("key.bias"):  # its gradient is rounding alone, which Adam makes a step of
            torch.testing.assert_close(two[name], one[name], rtol=0, atol=1e-5)
    assert compiled.validation_bleu == plain.validation_bleu
    loaded = load_model(tmp_path / "compiled" / "best.ckpt")
    assert evaluate(loaded, task, DecodingOptions(beam_size=1))[0] == plain.validation_bleu


def test_a_wrapped_model_is_trained_itself(task, train, tmp_path):
    model = task.model()
    result = train(torch.compile(model, backend="eager"), tmp_path, max_steps=1)
    assert result.model is model
    assert not any("_orig_mod" in name for name in torch.load(tmp_path / "last.ckpt", weights_only=True)["state_dict"])


# Seeds


class Orders(pl.Callback):
    """Notes what the data order, the dropout masks and the gates' noise of a run come to."""

    def __init__(self) -> None:
        self.batches: list[list[list[int]]] = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, *_) -> None:
        self.batches.append([part.source_ids.flatten().tolist() for part in batch.batches])
        self.dropout = torch.get_rng_state()
        self.gates = pl_module.gate_generator.get_state()


def test_each_seed_decides_one_thing(task, train, tmp_path):
    def orders(**changed: int):
        seen = Orders()
        seeds = Seeds(**{"model": 1, "data": 1, "dropout": 1, "gates": 1, **changed})
        model = task.model(gated=True, dropout=0.2)
        train(model, tmp_path / "-".join(changed or ["none"]), seeds=seeds, callbacks=[seen], max_steps=3)
        return seen

    base = orders()
    for name in ("model", "data", "dropout", "gates"):
        other = orders(**{name: 2})
        assert (other.batches == base.batches) == (name != "data")
        # The masks drawn in an update depend on the sizes of its batches, so data has a say in this one.
        if name != "data":
            assert torch.equal(other.dropout, base.dropout) == (name != "dropout")
        assert torch.equal(other.gates, base.gates) == (name != "gates")


def test_the_same_seeds_give_the_same_run(task, train, tmp_path):
    one, two = (
        train(task.model(gated=True, dropout=0.2), tmp_path / name, penalty=L0Penalty(weight=0.05)) for name in "ab"
    )
    assert one.validation_bleu == two.validation_bleu
    torch.testing.assert_close(one.model.state_dict(), two.model.state_dict(), rtol=0, atol=0)
    assert metrics(tmp_path / "a") == metrics(tmp_path / "b")


# Refusals


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"max_steps": 0}, "trainer.max_steps: 0; allowed are whole numbers from 1"),
        ({"max_steps": -1}, "trainer.max_steps: -1; allowed"),
        ({"max_steps": True}, "trainer.max_steps: True; allowed"),
        ({"max_steps": None}, "trainer.max_steps: None; allowed"),
        ({"trainer": {"max_stepz": 3}}, "trainer: .*max_stepz"),
        ({"trainer": {"precision": "float"}}, "trainer: .*float"),
        ({"trainer": {"precision": 64}}, "trainer.precision: '64-true'; allowed are 32-true, bf16-mixed, 16-mixed"),
        ({"trainer": {"precision": "bf16-true"}}, "trainer.precision: 'bf16-true'; allowed are 32-true, bf16-mixed"),
        ({"trainer": {"accelerator": "abacus"}}, "trainer: .*abacus"),
        ({"trainer": {"max_epochs": 3}}, "trainer.max_epochs: 3; not used here: .*trainer.max_steps"),
        ({"trainer": {"enable_checkpointing": True}}, "trainer.enable_checkpointing: True; not used here: checkpoints"),
        ({"trainer": {"accumulate_grad_batches": 2}}, "trainer.accumulate_grad_batches: 2; .*training.accumulate"),
        ({"trainer": {"gradient_clip_val": 1.0}}, "trainer.gradient_clip_val: 1.0; .*training.clip_norm"),
        ({"trainer": {"limit_train_batches": 5}}, "trainer.limit_train_batches: 5; .*trainer.max_steps"),
        ({"average_decay": 1.0}, "training.average_decay: 1.0; allowed"),
        ({"average_decay": 0}, "training.average_decay: 0; allowed"),
        ({"patience": 0}, "training.patience: 0; allowed are whole numbers from 1, or null"),
        ({"validate_every": 0}, "training.validate_every: 0; allowed"),
        ({"accumulate": 0}, "training.accumulate: 0; allowed"),
        ({"keep": "worst"}, "training.keep: 'worst'; allowed are best, last"),
        ({"log_every": 0}, "training.log_every: 0; allowed"),
        ({"gate_every": 0}, "training.gate_every: 0; allowed are whole numbers from 1"),
        ({"label_smoothing": 1.0}, "training.label_smoothing: 1.0; allowed"),
        ({"clip_norm": -1.0}, "training.clip_norm: -1.0; allowed"),
        ({"max_tokens": 2}, "max_tokens=2 leaves none"),
    ],
)
def test_settings_that_cannot_work(task, train, tmp_path, more, message):
    with pytest.raises(ValueError, match=message) as error:
        train(task.model(), tmp_path / "run", **more)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_a_penalty_needs_gates(task, train, tmp_path):
    with pytest.raises(ValueError, match="penalty: the model has no gates; add gates=hard_concrete"):
        train(task.model(), tmp_path / "run", penalty=L0Penalty(weight=0.1))
    assert not (tmp_path / "run").exists()


def test_a_model_needs_its_tokenizer(task, train, tmp_path):
    model = task.model()
    model.tokenizer = None
    with pytest.raises(ValueError, match="the model has no tokenizer"):
        train(model, tmp_path / "run")


def test_frozen_altogether(task, train, tmp_path):
    model = task.model()
    freeze(model, ["encoder", "decoder", "embeddings"])
    with pytest.raises(ValueError, match="training.freeze: nothing is left to train") as error:
        train(model, tmp_path / "run")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("penalty", "change", "reason"),
    [
        (
            0.1,
            {"optimizer": partial(torch.optim.Adam, lr=1e30)},
            "holds NaN or infinity at update 2: training diverged",
        ),
        (1e300, {}, r"holds NaN or infinity at update 2: training diverged; .* penalty\.weight"),
        (0.1, {"gate_learning_rate": 1e300}, "without overflow, at update 1: training diverged; lower optimizer.lr"),
    ],
)
def test_training_that_diverges_ends_with_a_reason_and_no_result(task, train, tmp_path, penalty, change, reason):
    with pytest.raises(ValueError, match=reason) as error:
        train(task.model(gated=True), tmp_path, validate_every=2, penalty=L0Penalty(weight=penalty), **change)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.glob("*.ckpt"))


def test_a_loss_that_is_no_number_ends_training(task, train, tmp_path, monkeypatch):
    monkeypatch.setattr(validation.Validation, "_nll", lambda *_: float("nan"))
    with pytest.raises(ValueError, match="^the validation loss is nan at update 10: training diverged; lower"):
        train(task.model(), tmp_path)
    assert not list(tmp_path.glob("*.ckpt"))


def too_long(task, train, directory, **sizes) -> str:
    settings = {name: sizes.pop(name) for name in ("max_tokens",) if name in sizes}
    with pytest.raises(ValueError, match="^model.max_positions: ") as error:
        train(task.model(positions="learned", **sizes), directory / "run", max_steps=2, **settings)
    assert "\n" not in str(error.value) and not (directory / "run").exists()
    return str(error.value)


def test_sentences_longer_than_learned_positions_are_told_at_the_start(task, train, tmp_path):
    corpus = task.data.train
    lengths = np.maximum(corpus.source_lengths, corpus.target_lengths)
    first = int(np.flatnonzero(lengths == lengths.max())[0])
    side, length = ("source" if corpus.source_lengths[first] == lengths.max() else "target"), lengths.max()
    count = int((lengths == length).sum())
    assert too_long(task, train, tmp_path, max_positions=int(length) - 1) == (
        f"model.max_positions: {length - 1}, but line {first + 1} of the training text has {length} {side} tokens with "
        f"its end mark ({count} lines are too long); allowed are shorter lines, or model.max_positions from {length}, "
        f"or training.max_tokens up to {length - 1}, which leaves longer ones out"
    )
    pairs = task.data.validation.pairs
    encoded = EncodedCorpus.encode(task.tokenizer, pairs)
    longest = int(np.maximum(encoded.source_lengths, encoded.target_lengths).max())
    said = too_long(task, train, tmp_path, max_positions=longest - 1, max_tokens=longest - 1)
    assert "of the validation text has" in said and "max_tokens" not in said
    train(task.model(positions="learned", max_positions=longest), tmp_path, max_steps=2, max_tokens=longest)


def test_dropout_of_the_training_takes_the_place_of_the_models_own(task, train, tmp_path):
    def weights(dropout, name):
        result = train(task.model(dropout=0.3), tmp_path / name, max_steps=3, dropout=dropout)
        assert result.model.config.dropout == (0.3 if dropout is None else dropout)
        return result.model.state_dict()

    own, same, less = weights(None, "own"), weights(0.3, "same"), weights(0.1, "less")
    straight = train(task.model(dropout=0.1), tmp_path / "straight", max_steps=3).model.state_dict()
    assert all(torch.equal(own[name], same[name]) and torch.equal(less[name], straight[name]) for name in own)
    assert not all(torch.equal(own[name], less[name]) for name in own)


def test_dropout_that_cannot_work_is_refused(task, train, tmp_path):
    with pytest.raises(ValueError, match=r"training\.dropout: 1\.0; allowed are numbers from 0 and below 1"):
        train(task.model(), tmp_path / "run", dropout=1.0)
    assert not (tmp_path / "run").exists()
