"""Training with a teacher: the gradients of the naive loss however a batch is shared, and a teacher that stays out."""

import json
from functools import partial

import pytest
import torch
from test_module import assert_same_gradients, example, run, window_of
from test_resume import StopAt, StoppedError
from torch.nn import functional

from prune_lab.data.batching import collate
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.heads import HeadMask
from prune_lab.model.storage import weights_hash
from prune_lab.pruning.surgery import prune_heads
from prune_lab.training import teacher as teacher_module
from prune_lab.training.checkpoint import load_checkpoint
from prune_lab.training.distillation import Distillation
from prune_lab.training.loss import BatchLoss
from prune_lab.training.parameters import freeze
from prune_lab.training.teacher import Teacher

LENGTHS = [11, 30, 4, 17, 23]
MIXED = Distillation(weight=0.3, temperature=2.0)
ALL = Distillation(weight=1.0)
REMOVED = {"encoder.0.self": [1, 2], "decoder.0.self": range(4), "decoder.1.cross": [0]}


@pytest.fixture
def batch():
    return collate([example(length, seed) for seed, length in enumerate(LENGTHS)])


def pruned(model):
    return prune_heads(model, HeadMask.removing(REMOVED, model))


@pytest.fixture
def pair(small_model):
    """Builds a student and the settings of a run with a teacher, in float64."""

    def build(distillation=MIXED, **settings):
        unpruned = small_model(seed=1, **settings).double()
        return pruned(unpruned), Teacher(small_model(seed=2, **settings).double(), distillation)

    return build


def divergence(teacher, student, batch):
    """KL(teacher || student) for each real target token, from all logits."""
    with torch.no_grad():
        theirs, ours = (
            model.eval()(batch.source_ids, batch.target_ids[:, :-1]).flatten(0, 1)[batch.gold_positions]
            for model in (teacher, student)
        )
    return float(functional.kl_div(ours.log_softmax(1), theirs.softmax(1), reduction="batchmean"))


# The gradient


@pytest.mark.parametrize("settings", [{}, {"share_embeddings": True, "tie_output": True}], ids=["own", "tied"])
@pytest.mark.parametrize("distillation", [MIXED, ALL, Distillation(weight=0.5)], ids=["mixed", "all", "half"])
def test_the_gradient_is_that_of_the_naive_loss_per_token(pair, batch, settings, distillation):
    student, teacher = pair(distillation, **settings)
    naive = student.copy()
    (seen,) = run(student, [window_of(batch)], teacher=teacher).seen
    gold = batch.target_ids[:, 1:].flatten()
    theirs, ours = (
        model(batch.source_ids, batch.target_ids[:, :-1]).flatten(0, 1)[gold != 0] for model in (teacher.model, naive)
    )
    hard = functional.cross_entropy(ours, gold[gold != 0], label_smoothing=0.1)
    w, tau = distillation.weight, distillation.temperature
    soft = functional.kl_div((ours / tau).log_softmax(1), (theirs / tau).softmax(1), reduction="batchmean")
    ((1 - w) * hard + w * tau**2 * soft).backward()
    expected = {name: parameter.grad for name, parameter in naive.named_parameters() if parameter.grad is not None}
    assert_same_gradients(seen, expected, 1e-9)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("num_parts", [2, 3])
def test_parts_give_the_gradients_of_the_whole(pair, batch, num_parts, gated):
    def gradients(**settings):
        student, teacher = pair()
        if gated:
            student.add_gates("hard_concrete", options={"init": 0.3})
        (seen,) = run(student.double(), [window_of(batch)], teacher=teacher, **settings).seen
        return seen

    assert_same_gradients(gradients(), gradients(parts=num_parts), 1e-6 if gated else 1e-10)


def test_accumulation_and_padding_do_not_change_the_gradient(pair):
    short, long = example(5), example(60)
    windows = [window_of(collate([short, long])), window_of(collate([short]), collate([long]))]
    together, apart = (run(student, [w], teacher=teacher).seen[0] for w in windows for student, teacher in [pair()])
    assert_same_gradients(together, apart, 1e-10)


def test_bf16_mixed_stays_close(pair, batch):
    def gradients(precision):
        student, teacher = pair()
        teacher.model.float()
        (seen,) = run(student.float(), [window_of(batch)], teacher=teacher, trainer={"precision": precision}).seen
        return seen

    exact, mixed = gradients("32-true"), gradients("bf16-mixed")
    off = {name: float((mixed[name] - exact[name]).norm() / exact[name].norm()) for name in exact}
    assert 0 < max(share for name, share in off.items() if not name.endswith("key.bias")) < 0.15


def test_a_compiled_teacher_says_the_same(small_model, batch):
    model = small_model(encoder_layers=1, decoder_layers=1)
    plain, compiled = (
        Teacher(model, MIXED, options).hidden(batch.source_ids, batch.target_ids)
        for options in (None, {"backend": "eager"})
    )
    torch.testing.assert_close(compiled, plain, rtol=1e-5, atol=1e-5)


def test_frozen_parts_have_no_gradient(pair, batch):
    student, teacher = pair()
    freeze(student, ["encoder"])
    (seen,) = run(student, [window_of(batch)], teacher=teacher, parts=2).seen
    assert seen and not any(name.startswith("encoder.") for name in seen)


# The teacher


def test_a_teacher_is_in_evaluation_mode_whatever_it_was(small_model, batch):
    """No dropout, no noise of gates, no gradients: one with gates teaches what it is when it translates."""
    model = small_model(dropout=0.3)
    model.add_gates("hard_concrete")
    for gate in model.gates().values():
        gate.log_a.data = torch.tensor([2.0, -1.0, 0.5, -3.0])
    kept = prune_heads(model, HeadMask.keeping(model.open_heads(), model), keep_gates=False).eval()
    teacher = Teacher(model.train(), ALL)
    ids = batch.source_ids, batch.target_ids
    found = teacher.hidden(*ids)
    assert torch.equal(found, teacher.hidden(*ids)) and not found.requires_grad
    torch.testing.assert_close(found, kept.hidden(*ids).detach(), rtol=1e-5, atol=1e-5)
    assert model.training and all(parameter.requires_grad for parameter in model.parameters())


def test_validation_asks_no_teacher(pair, batch):
    student, teacher = pair()
    plain = BatchLoss(student, label_smoothing=0.1)(batch)
    taught = BatchLoss(student, label_smoothing=0.1, teacher=teacher)
    student.eval()
    assert all(torch.equal(one, two) for one, two in zip(plain, taught(batch), strict=True))
    student.train()
    assert not torch.equal(plain[0], taught(batch)[0])


@pytest.fixture(scope="module")
def taught_by(task, train, tmp_path_factory):
    """An unpruned model that has learned something."""
    rate = {"optimizer": partial(torch.optim.Adam, lr=8e-3), "validate_every": 120}
    return train(task.model(), tmp_path_factory.mktemp("teacher"), max_steps=120, keep="last", **rate).model


@pytest.fixture
def recover(task, settings, taught_by, tmp_path):
    """Trains the pruned teacher: ``recover("name", distillation=..., teacher=...)``."""
    from prune_lab.training.fit import Seeds, fit

    def run(name="run", *, teacher=taught_by, callbacks=(), **more):
        given = settings(**{"max_steps": 20, "keep": "last", **more})
        student, place = pruned(taught_by), tmp_path / name
        return fit(student, task.data, given, directory=place, seeds=Seeds.all(1), teacher=teacher, callbacks=callbacks)

    return run


def test_a_student_comes_closer_to_its_teacher_than_without(task, taught_by, recover):
    batch = task.data.train.batch(range(60))
    before = divergence(taught_by, pruned(taught_by), batch)
    without = divergence(taught_by, recover("without", teacher=None).model, batch)
    assert divergence(taught_by, recover("with", distillation=ALL).model, batch) < 0.8 * without < 0.8 * before


def test_the_teacher_stays_as_it_was_and_out_of_what_is_stored(taught_by, recover, tmp_path):
    before, mode = weights_hash(taught_by), taught_by.training
    result = recover("with", distillation=MIXED, average_decay=0.9)
    assert weights_hash(taught_by) == before and taught_by.training == mode
    assert all(parameter.grad is None for parameter in taught_by.parameters())
    recover("without", teacher=None, average_decay=0.9)
    taught, plain = (load_checkpoint(tmp_path / name / "last.ckpt") for name in ("with", "without"))
    assert taught["state_dict"].keys() == plain["state_dict"].keys()
    assert taught["prune_lab"]["average"].keys() == plain["prune_lab"]["average"].keys()
    groups, others = (content["optimizer_states"][0]["param_groups"] for content in (taught, plain))
    assert [group["params"] for group in groups] == [group["params"] for group in others]
    assert (taught["prune_lab"]["teacher"], plain["prune_lab"]["teacher"]) == (before, None)
    result.model.save_pretrained(tmp_path / "export")
    config = json.loads((tmp_path / "export" / "config.json").read_text(encoding="utf-8"))
    assert "teacher" not in config and result.model.state_dict().keys() == pruned(taught_by).state_dict().keys()


def test_weight_0_is_plain_training_bit_for_bit_and_runs_no_teacher(recover, monkeypatch):
    plain = recover("plain", teacher=None, max_steps=5)
    monkeypatch.setattr(teacher_module, "Teacher", None)
    none = recover("none", distillation=Distillation(weight=0.0, temperature=2.0), max_steps=5)
    for name, tensor in plain.model.state_dict().items():
        assert torch.equal(none.model.state_dict()[name], tensor), name


# Resuming


def test_a_stopped_run_ends_like_one_that_was_not(recover):
    asked = {"distillation": MIXED, "parts": 2, "accumulate": 2}
    expected = recover("straight", **asked)
    with pytest.raises(StoppedError):
        recover("stopped", callbacks=[StopAt(14)], **asked)
    result = recover("stopped", **asked)
    torch.testing.assert_close(result.model.state_dict(), expected.model.state_dict(), rtol=0, atol=0)


def test_another_teacher_or_none_is_refused(task, taught_by, recover, tmp_path):
    recover(distillation=MIXED, max_steps=10)
    found, other = weights_hash(taught_by)[:12], task.model(seed=5)
    wrong = f"weights {found} there, weights {weights_hash(other)[:12]} now"
    with pytest.raises(ValueError, match=f"last.ckpt: .* with another teacher .{wrong}") as error:
        recover(teacher=other, distillation=MIXED)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=f"another teacher .weights {found} there, none now"):
        recover(teacher=None)
    assert load_checkpoint(tmp_path / "run" / "last.ckpt")["global_step"] == 10
    recover("plain", teacher=None, max_steps=10)
    with pytest.raises(ValueError, match=f"another teacher .none there, weights {found} now"):
        recover("plain", distillation=MIXED)


# What is refused


def test_a_teacher_needs_settings_and_the_same_tokenizer(task, taught_by, recover, tmp_path):
    def refused(message, **changes):
        with pytest.raises(ValueError, match=message) as error:
            recover(**changes)
        assert "\n" not in str(error.value) and not list(tmp_path.iterdir())

    refused("^teacher: given, but training.distillation.weight is not")
    refused("^training.distillation.weight: 0.3 without a teacher", teacher=None, distillation=MIXED)
    other = task.model()
    other.tokenizer = Tokenizer.train(task.data.validation.pairs, vocab_size=160)
    hashes = f"{other.tokenizer.hash}; .* {task.tokenizer.hash}$"
    refused(f"^teacher: its tokenizer has the hash {hashes}", teacher=other, distillation=MIXED)
    other.tokenizer = None
    refused("^teacher: it has no tokenizer", teacher=other, distillation=MIXED)
    wider = task.model(target_vocab_size=taught_by.config.target_vocab_size + 1, share_embeddings=False)
    refused("^teacher: its target_vocab_size is", teacher=wider, distillation=MIXED)
    short = task.model(positions="learned", max_positions=4)
    refused("^teacher: model.max_positions: 4, but line", teacher=short, distillation=MIXED)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"weight": 1.1}, "x.distillation.weight: 1.1; allowed are numbers from 0 to 1"),
        ({"weight": -0.1}, "x.distillation.weight: -0.1; allowed are numbers from 0 to 1"),
        ({"weight": float("nan")}, "x.distillation.weight: nan; allowed are numbers from 0 to 1"),
        ({"weight": "a"}, "x.distillation.weight: 'a'; allowed are numbers from 0 to 1"),
        ({"weight": True}, "x.distillation.weight: True; allowed are numbers from 0 to 1"),
        ({"weight": 1, "temperature": 0}, "x.distillation.temperature: 0; allowed are numbers from 0.001 to 1000"),
        (
            {"weight": 1, "temperature": float("inf")},
            "x.distillation.temperature: inf; allowed are numbers from 0.001 to 1000",
        ),
        ({"temperature": 2}, "x.distillation.temperature: 2 without x.distillation.weight; set both or none"),
        (
            {"weight": 1, "temperature": 1e300},
            "x.distillation.temperature: 1e+300; allowed are numbers from 0.001 to 1000",
        ),
        ({"wieght": 1}, "unknown key x.distillation.wieght; allowed are weight, temperature"),
        (0.5, "x.distillation: 0.5; allowed is a mapping with the keys weight, temperature"),
    ],
)
def test_settings_that_cannot_work(values, message):
    with pytest.raises(ValueError) as error:
        Distillation.from_config(values, "x.distillation")
    assert str(error.value) == message


def test_settings_of_a_configuration():
    read = partial(Distillation.from_config, where="distillation")
    assert read(None) is None and read({}) is None and read({"weight": None, "temperature": None}) is None
    assert read({"weight": 0, "temperature": None}) == Distillation(weight=0)
    assert read({"weight": 0.5, "temperature": 2}).facts() == {"distillation": 0.5, "distillation_temperature": 2}
