"""Updates that are measured are those that training makes."""

from dataclasses import replace
from itertools import islice

import hydra
import pytest
import torch
from omegaconf import OmegaConf

from prune_lab.commands import build
from prune_lab.commands.benchmark_settings import training_passes
from prune_lab.commands.help import config_directory
from prune_lab.data.datamodule import TranslationData
from prune_lab.training.fit import Seeds, fit
from prune_lab.training.parts import BatchParts, parts_in_force
from prune_lab.training.schedules import constant
from prune_lab.training.training_pass import TrainingPass


@pytest.mark.parametrize(("parts", "decay"), [(1, None), (2, None), (2, 0.9)])
def test_a_pass_makes_the_updates_of_fit(task, train, settings, tmp_path, parts, decay):
    asked = {"max_steps": 3, "validate_every": 3, "parts": parts, "keep": "last", "average_decay": decay}
    result, given = train(task.model(), tmp_path, **asked), settings(**asked)
    stream = TranslationData(task.data.train, max_tokens=given.max_tokens, seed=1).batches()
    batches = list(islice(stream, 3))
    model = task.model()
    before = {name: parameter.clone() for name, parameter in model.state_dict().items()}
    update = TrainingPass(model, batches, given)
    assert update.num_target_tokens == sum(batch.num_target_tokens for batch in batches)
    update()
    if update._average is not None:
        update._average.swap()
    trained, expected = update.model.state_dict(), result.model.state_dict()
    for name in expected:
        assert torch.equal(model.state_dict()[name], before[name]), "the model that is given stays as it is"
        if not name.endswith("key.bias"):  # its gradient is rounding alone
            assert not torch.equal(expected[name], before[name]) or "head_mask" in name
            torch.testing.assert_close(trained[name], expected[name], rtol=1e-5, atol=1e-6)


def composed(command, *overrides):
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(config_directory())):
        return OmegaConf.to_container(hydra.compose(command, overrides=list(overrides)), resolve=True)


@pytest.mark.parametrize("parts", [1, 2])
def test_a_benchmark_makes_the_updates_of_training(task, tmp_path, parts):
    """From the configurations of both commands, in float64, in which nothing but the same update gives 1e-10."""
    told = ["training.max_tokens=250", "training.clip_norm=0.5", "training.label_smoothing=0.2"]
    told.append(f"training.parts={parts}")
    config = composed("train", *told, "trainer.max_steps=2", "training.validate_every=2")
    given = replace(build.build_settings(config, keep="last"), schedule=constant)
    batches = list(islice(TranslationData(task.data.train, max_tokens=given.max_tokens, seed=5).batches(), 2))
    update = training_passes(composed("benchmark", *told))(task.model().double(), batches)
    update()
    result = fit(task.model().double(), task.data, given, directory=tmp_path, seeds=Seeds.all(5))
    assert (update.parts, update.products) == (result.parts, "float64") and result.parts == parts
    before, trained = task.model().double().state_dict(), update.model.state_dict()
    assert sum(not torch.equal(before[name], tensor) for name, tensor in trained.items()) > 40
    for name, expected in result.model.state_dict().items():
        if not name.endswith("key.bias"):  # its gradient is rounding alone
            torch.testing.assert_close(trained[name], expected, rtol=1e-10, atol=1e-10)


def test_parts_in_force_are_those_of_fit(task, train, settings, tmp_path):
    """Threads cannot draw masks of attention weights in a fixed order; compiled passes and GPUs take a batch whole."""
    batches = [task.data.train.batch(range(4))]
    model = task.model(attention_dropout=0.1)
    update = TrainingPass(model, batches, settings(parts=3))
    assert update.parts == 1 == train(model, tmp_path, max_steps=1, validate_every=1, parts=3).parts
    assert not isinstance(update._loss, BatchParts)
    assert TrainingPass(task.model(), batches, settings(parts=3, compile_options={})).parts == 1
    whole = TrainingPass(task.model(), batches, settings(parts=3))
    assert whole.parts == 3 and isinstance(whole._loss, BatchParts)
    assert parts_in_force(task.model(), 3, device=torch.device("cuda"), compile_options=None) == 1


@pytest.mark.parametrize(
    ("capabilities", "asked", "autocast", "kind", "expected"),
    [
        ({"avx512_bf16": True}, "bfloat16", None, torch.float32, "bfloat16"),
        ({}, "bfloat16", None, torch.float32, "float32"),
        ({"avx512_bf16": True}, "float32", None, torch.float32, "float32"),
        ({"avx512_bf16": True}, "bfloat16", None, torch.float64, "float64"),
        ({}, "float32", torch.bfloat16, torch.float32, "bfloat16"),
    ],
)
@pytest.mark.filterwarnings("ignore:training.products")
def test_products_in_force_are_told(task, settings, monkeypatch, capabilities, asked, autocast, kind, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    batches = [task.data.train.batch(range(4))]
    update = TrainingPass(task.model().to(kind), batches, settings(products=asked, parts=1), autocast=autocast)
    assert update.products == expected
