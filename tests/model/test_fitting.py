"""Weights, configuration and tokenizer of an export belong together, or it is told before a model is built."""

import json
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from prune_lab.data.tokenizer import Tokenizer
from prune_lab.model.config import ModelConfig
from prune_lab.model.fitting import outline
from prune_lab.model.transformer import Transformer

PAIRS = [("ein Hund schläft", "a dog sleeps"), ("der Mann", "the man")]


@pytest.fixture
def export(small_model, tmp_path: Path) -> Path:
    small_model(heads={"encoder.0.self": [1]}, gates={"name": "hard_concrete"}).save_pretrained(tmp_path / "export")
    return tmp_path / "export"


def refusal(directory: Path) -> str:
    with pytest.raises(ValueError) as error:
        Transformer.from_pretrained(directory)
    assert "\n" not in str(error.value)
    return str(error.value)


def change_config(directory: Path, **settings) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def test_the_outline_has_the_tensors_of_the_model(small_model, variant):
    for settings in ({}, {"gates": {"name": "hard_concrete"}, "heads": {"decoder.0.cross": []}}):
        model = small_model(**variant, **settings)
        expected = {name: (tensor.shape, tensor.dtype) for name, tensor in model.state_dict().items()}
        before = torch.get_rng_state()
        assert {name: (tensor.shape, tensor.dtype) for name, tensor in outline(model.config).items()} == expected
        assert torch.equal(torch.get_rng_state(), before)


def test_the_largest_model_has_an_outline():
    sizes = {"source_vocab_size": 10**8, "target_vocab_size": 10**8, "d_model": 10**6, "d_feed_forward": 10**7}
    stacks = {"encoder_layers": 20, "decoder_layers": 20, "encoder_heads": 1000, "decoder_heads": 1000}
    assert sum(tensor.numel() for tensor in outline(ModelConfig(**sizes, **stacks)).values()) > 10**14


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d_feed_forward": 10_000_000}, "tensor 'encoder.layers.0.feed_forward.inner.weight' has shape [48, 32]; "),
        ({"source_vocab_size": 100_000_000}, "tensor 'source_table.weight' has shape [37, 32]; config.json asks for"),
        ({"positions": "learned", "max_positions": 100_000_000}, "tensor 'source_positions.table' of shape [100000000"),
    ],
)
def test_absurd_sizes_are_told_without_a_model_of_them(export, monkeypatch, settings, message):
    change_config(export, **settings)
    monkeypatch.setattr("prune_lab.model.storage.Transformer", None)
    start = time.process_time()
    assert refusal(export).startswith(f"{export / 'model.safetensors'}: {message}")
    assert time.process_time() - start < 3


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("source_table.weight", torch.int64, "holds int64; allowed here is float64, float32, float16, bfloat16"),
        ("source_table.weight", torch.float8_e4m3fn, "holds float8_e4m3fn; allowed here is float64, float32, float16"),
        ("encoder.layers.0.feed_forward.inner.weight", torch.float16, "holds float16; allowed here is float32"),
        ("decoder.layers.1.feed_forward.inner.bias", torch.bool, "holds bool; allowed here is float32"),
        ("encoder.layers.0.self_attention.gate.log_a", torch.int32, "holds int32; allowed here is float64, float32"),
        ("encoder.layers.0.self_attention.head_mask", torch.float32, "holds float32; allowed here is bool"),
    ],
    ids=str,
)
def test_weights_of_other_types_are_named(export, name, kind, message):
    weights = load_file(export / "model.safetensors")
    weights[name] = weights[name].to(kind)
    save_file(weights, export / "model.safetensors", metadata={"format": "pt"})
    assert refusal(export).startswith(f"{export / 'model.safetensors'}: tensor {name!r} {message}")


def test_gates_may_have_another_type(export):
    weights = load_file(export / "model.safetensors")
    name = "encoder.layers.0.self_attention.gate.log_a"
    weights[name] = weights[name].double()
    save_file(weights, export / "model.safetensors", metadata={"format": "pt"})
    assert Transformer.from_pretrained(export).gates()["encoder.0.self"].log_a.dtype == torch.float64


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_tokenizer_with_other_vocabularies_than_the_model_is_refused(small_model, tmp_path, side):
    tokenizer = Tokenizer.train(PAIRS, kind="words", joint=False)
    sizes = {"source_vocab_size": tokenizer.source_vocab_size, "target_vocab_size": tokenizer.target_vocab_size}
    model = small_model(**sizes)
    model.tokenizer = tokenizer
    model.save_pretrained(tmp_path / "export")
    has = sizes[f"{side}_vocab_size"]
    change_config(tmp_path / "export", **{f"{side}_vocab_size": has + 1})
    path = tmp_path / "export" / "tokenizer.json"
    assert refusal(tmp_path / "export") == f"{path}: the tokenizer has {has} {side} entries, the model has {has + 1}"

    other = small_model(**{**sizes, f"{side}_vocab_size": has + 1})
    other.tokenizer = tokenizer
    with pytest.raises(
        ValueError, match=f"^tokenizer: the tokenizer has {has} {side} entries, the model has {has + 1}$"
    ):
        other.save_pretrained(tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_config_that_is_nested_deeply_is_no_json(export):
    (export / "config.json").write_text("[" * 100_000)
    assert refusal(export).startswith(f"{export / 'config.json'}: not readable as JSON (maximum recursion depth")


@pytest.mark.parametrize("source", [3, None, ["export"]], ids=str)
def test_an_export_is_named_by_its_path(source):
    with pytest.raises(ValueError, match=f"^export: a {type(source).__name__}; allowed is a directory, or the id"):
        Transformer.from_pretrained(source)


@pytest.mark.parametrize("config", [{"d_model": 32}, None, 3], ids=str)
def test_a_model_is_made_of_a_configuration(config):
    with pytest.raises(ValueError, match=f"^config: a {type(config).__name__}; allowed is a ModelConfig"):
        Transformer(config)
