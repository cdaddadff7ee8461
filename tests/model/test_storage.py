"""Exports: what was saved comes back, in another process as well, and what cannot be read is told in one line."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional

from prune_lab.data.tokenizer import Tokenizer
from prune_lab.heads import HeadMask
from prune_lab.model import storage
from prune_lab.model.storage import read_config, weights_hash
from prune_lab.model.transformer import Transformer
from prune_lab.pruning.surgery import mask_heads, prune_heads

ROOT = Path(__file__).resolve().parents[2]
FILES = {"config.json", "model.safetensors", "README.md"}
LOAD_ELSEWHERE = """
import sys, torch
from prune_lab.model.transformer import Transformer
for module in ("lightning", "pytorch_lightning", "hydra", "omegaconf", "wandb", "transformers"):
    assert module not in sys.modules, module
model = Transformer.from_pretrained(sys.argv[1])
source_ids, target_ids, expected = torch.load(sys.argv[2])
with torch.no_grad():
    print((model(source_ids, target_ids) - expected).abs().max().item())
print(model.heads())
print(model.training, tuple(model.encoder.layers[1].self_attention.attention.query.weight.shape))
"""


@pytest.fixture
def batch(sources, targets):
    return sources((3, 6, 5)), targets((4, 2, 6))


@pytest.fixture
def export(small_model, tmp_path):
    """A directory with the export of the small model."""
    small_model().save_pretrained(tmp_path / "export")
    return tmp_path / "export"


def pruned_as_in_a1(model):
    removed = {"encoder.0.self": [1], "encoder.1.self": [0, 2], "decoder.0.self": [3], "decoder.1.cross": [0, 1, 2]}
    return prune_heads(model, HeadMask.removing(removed, model))


def elsewhere(code, *arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=True).stdout


def test_a1_a_new_process_needs_the_path_alone(small_model, batch, tmp_path):
    model = pruned_as_in_a1(small_model())
    model.save_pretrained(tmp_path / "export")
    with torch.no_grad():
        torch.save((*batch, model(*batch)), tmp_path / "expected.pt")
    difference, heads, rest = elsewhere(LOAD_ELSEWHERE, tmp_path / "export", tmp_path / "expected.pt").splitlines()
    assert float(difference) == 0
    assert heads == str(model.heads())
    counts = {site: len(numbers) for site, numbers in model.heads().items()}
    assert [counts[f"encoder.{layer}.self"] for layer in (0, 1)] == [3, 2]
    assert [counts[f"decoder.{layer}.self"] for layer in (0, 1)] == [3, 4]
    assert [counts[f"decoder.{layer}.cross"] for layer in (0, 1)] == [4, 1]
    assert rest == "False (16, 32)"


def test_every_kind_of_model_comes_back(small_model, variant, batch, tmp_path):
    model = small_model(**variant)
    removed = {"encoder.0.self": [0, 1, 2, 3], "encoder.1.self": [2], "decoder.0.cross": [1]}
    for number, saved in enumerate((model, prune_heads(model, HeadMask.removing(removed, model)))):
        saved.save_pretrained(tmp_path / str(number))
        loaded = Transformer.from_pretrained(tmp_path / str(number))
        assert not loaded.training and loaded.config == saved.config and loaded.heads() == saved.heads()
        assert torch.equal(loaded(*batch), saved(*batch))
        assert loaded.generate(batch[0], beam_size=2) == saved.generate(batch[0], beam_size=2)
        assert weights_hash(loaded) == weights_hash(saved)
        trainable = [{name: weight.requires_grad for name, weight in of.named_parameters()} for of in (loaded, saved)]
        assert trainable[0] == trainable[1]


@pytest.mark.parametrize("evaluation", ["round", "fraction"])
def test_gates_and_masks_come_back(small_model, batch, tmp_path, evaluation):
    model = small_model()
    model.add_gates("hard_concrete", kinds=["encoder.self", "decoder.cross"], options={"evaluation": evaluation})
    with torch.no_grad():
        for gate in model.gates().values():
            gate.log_a.normal_()
    model = mask_heads(model, HeadMask.removing({"encoder.0.self": [1], "decoder.0.self": range(4)}, model))
    model = prune_heads(model, HeadMask.removing({"decoder.1.cross": [0]}, model))
    remasked = mask_heads(model, HeadMask.removing({"decoder.1.cross": [2]}, model))
    remasked.save_pretrained(tmp_path)
    loaded = Transformer.from_pretrained(str(tmp_path))
    assert torch.equal(loaded(*batch), remasked(*batch))
    assert loaded.heads() == remasked.heads() and loaded.open_heads() == remasked.open_heads()
    assert loaded.config.gates == remasked.config.gates
    for site, gate in remasked.gates().items():
        assert torch.equal(loaded.gates()[site].log_a, gate.log_a) and loaded.gates()[site].log_a.requires_grad


def test_a9_sites_without_heads_come_back(small_model, batch, tmp_path):
    model = small_model()
    model = prune_heads(model, HeadMask.removing({site: range(4) for site in model.sites()}, model))
    model.save_pretrained(tmp_path)
    loaded = Transformer.from_pretrained(tmp_path)
    assert torch.equal(loaded(*batch), model(*batch))
    assert set(map(len, loaded.heads().values())) == {0}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_types_come_back_also_where_gates_have_another(small_model, batch, tmp_path, dtype):
    model = small_model().to(dtype)
    model.add_gates("hard_concrete", options={"evaluation": "fraction"})
    model.save_pretrained(tmp_path)
    loaded = Transformer.from_pretrained(tmp_path)
    assert {name: tensor.dtype for name, tensor in loaded.state_dict().items()} == {
        name: tensor.dtype for name, tensor in model.state_dict().items()
    }
    assert loaded.gates()["encoder.0.self"].log_a.dtype == torch.float32
    logits = model(*batch)
    assert logits.dtype == dtype and torch.equal(loaded(*batch), logits)


def test_an_export_holds_plain_files_and_short_names(export):
    assert {path.name for path in export.iterdir()} == FILES
    config = json.loads((export / "config.json").read_text())
    assert config["model_type"] == "prune_lab" and config["format_version"] == 1
    assert config["attention"] == {"name": "multi_head", "options": {}}
    assert config["heads"]["decoder.1.cross"] == [0, 1, 2, 3] and config["encoder_head_dim"] == 8
    assert "prune_lab." not in (export / "config.json").read_text()
    card = (export / "README.md").read_text()
    assert "24 of 24 attention heads remain" in card and "library_name: prune_lab" in card


def test_the_card_counts_what_remains(small_model, tmp_path):
    pruned_as_in_a1(small_model()).save_pretrained(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert "17 of 24 attention heads remain" in card
    assert (
        "| decoder.cross | 5 | 8 |" in card
        and "| decoder.1.cross | 3 |" in card
        and "| encoder.1.self | 1, 3 |" in card
    )


def test_exports_with_the_bare_name_of_their_attention_load(export, small_model):
    path = export / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"attention": "multi_head"}))
    assert weights_hash(Transformer.from_pretrained(export)) == weights_hash(small_model())


def test_a_config_file_states_its_format(export):
    path = export / "config.json"
    values = json.loads(path.read_text())
    del values["format_version"]
    path.write_text(json.dumps(values))
    assert refusal(ValueError, export) == f"{path}: key 'format_version' is missing; every export states it"


def test_unknown_arguments_of_saving_are_refused(small_model, tmp_path):
    with pytest.raises(TypeError, match="unexpected keyword argument 'typo'"):
        small_model().save_pretrained(tmp_path / "export", typo=3)
    assert not (tmp_path / "export").exists()
    small_model().save_pretrained(tmp_path / "export", config=None, model_card_kwargs=None)
    with pytest.raises(ValueError, match=r"^config: \{'a': 1\}; allowed is None, the model's own is written$"):
        small_model().save_pretrained(tmp_path / "other", config={"a": 1})


def test_saving_again_replaces_the_export_and_leaves_nothing_behind(small_model, export, batch):
    other = pruned_as_in_a1(small_model(seed=1))
    other.save_pretrained(export)
    assert {path.name for path in export.iterdir()} == FILES
    assert torch.equal(Transformer.from_pretrained(export)(*batch), other(*batch))


def broken(function, number):
    """The function, with a full disk at its call of this number."""
    calls = iter(range(number + 1))

    def call(*arguments):
        if next(calls) == number:
            raise OSError("No space left on device")
        return function(*arguments)

    return call


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("step", ["write", "replace"])
def test_a_failed_save_leaves_the_old_export_or_none_and_never_a_mixture(
    with_tokenizer, small_model, batch, monkeypatch, step, number
):
    old, directory = with_tokenizer
    tokenizer = Tokenizer.train([*PAIRS, ("noch eins", "one more")], kind="words", joint=False)
    sizes = {name: getattr(tokenizer, name) for name in ("source_vocab_size", "target_vocab_size")}
    new = pruned_as_in_a1(small_model(seed=1, **sizes))
    new.tokenizer = tokenizer
    with monkeypatch.context() as full:
        if step == "write":
            full.setattr(storage, "_write_through", broken(storage._write_through, number))
        else:
            full.setattr(os, "replace", broken(os.replace, number))
        with pytest.raises(OSError, match="No space left"):
            new.save_pretrained(directory)
    assert {path.name for path in directory.iterdir()} <= FILES | {"tokenizer.json"}, "nothing is left behind"
    if step == "write":
        loaded = Transformer.from_pretrained(directory)
        assert weights_hash(loaded) == weights_hash(old) and loaded.tokenizer.hash == old.tokenizer.hash
    else:
        with pytest.raises(FileNotFoundError, match="not an export, it has no config.json"):
            Transformer.from_pretrained(directory)
    new.save_pretrained(directory)
    loaded = Transformer.from_pretrained(directory)
    assert weights_hash(loaded) == weights_hash(new) and loaded.tokenizer.hash == new.tokenizer.hash


def test_an_older_tokenizer_goes_when_the_new_model_has_none(with_tokenizer, small_model):
    _, directory = with_tokenizer
    small_model().save_pretrained(directory)
    assert {path.name for path in directory.iterdir()} == FILES
    assert Transformer.from_pretrained(directory).tokenizer is None


def test_weights_hash_tells_models_apart(small_model):
    model = small_model()
    assert weights_hash(model) == weights_hash(model.copy()) != weights_hash(small_model(seed=1))
    masked = mask_heads(model, HeadMask.removing({"encoder.0.self": [1]}, model))
    assert weights_hash(masked) != weights_hash(model) != weights_hash(model.copy().double())


# Compiled models


def trained(model, call, batch, updates=3):
    torch.manual_seed(7)
    optimizer = torch.optim.SGD([weight for weight in model.parameters() if weight.requires_grad], lr=0.1)
    model.train()
    for _ in range(updates):
        logits = call(batch[0], batch[1][:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), batch[1][:, 1:].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a12_compiled_models_have_the_same_keys_and_numbers(small_model, batch, tmp_path, backend):
    if backend == "inductor" and not shutil.which("g++"):
        pytest.skip("the inductor backend needs g++")

    def start():
        # Compiled passes compute attention with another kernel, whose rounding the large weights of this model enlarge.
        model = small_model(encoder_layers=1, decoder_layers=1).double()
        model.add_gates("fixed", options={"value": 0.7})
        return prune_heads(model, HeadMask.removing({"encoder.0.self": [1, 2], "decoder.0.self": range(4)}, model))

    plain, compiled = start(), start()
    trained(plain, plain, batch).save_pretrained(tmp_path / "plain")
    torch.compiler.reset()
    compiled.compile(backend=backend)
    trained(compiled, compiled, batch).save_pretrained(tmp_path / "compiled")
    loaded = [Transformer.from_pretrained(tmp_path / name) for name in ("plain", "compiled")]
    assert list(loaded[0].state_dict()) == list(loaded[1].state_dict()) == list(plain.state_dict())
    expected = plain(*batch)
    for number in (loaded[0](*batch), loaded[1](*batch), compiled(*batch)):
        torch.testing.assert_close(number, expected, rtol=0, atol=1e-10)
    # Trained without, evaluated with.
    loaded[0].compile(backend=backend)
    torch.testing.assert_close(loaded[0](*batch), expected, rtol=0, atol=1e-10)
    torch.compiler.reset()


def test_a12_wrappers_do_not_show_in_names_on_disk(small_model, batch, tmp_path):
    model = small_model(encoder_layers=1, decoder_layers=1)
    expected, names = model(*batch), list(model.state_dict())
    wrapper = torch.compile(model, backend="eager")
    wrapper.save_pretrained(tmp_path / "whole")
    cut = prune_heads(wrapper, HeadMask.removing({"encoder.0.self": [0]}, wrapper))
    assert type(cut) is Transformer and cut.heads()["encoder.0.self"] == [1, 2, 3]
    model.decoder = torch.compile(model.decoder, backend="eager")
    model.encoder.layers[0] = torch.compile(model.encoder.layers[0], backend="eager")
    assert list(model.state_dict()) != names
    model.save_pretrained(tmp_path / "parts")
    for name in ("whole", "parts"):
        loaded = Transformer.from_pretrained(tmp_path / name)
        assert list(loaded.state_dict()) == names and torch.equal(loaded(*batch), expected)


def test_surgery_on_a_compiled_model(small_model, batch):
    plain, compiled = (small_model(encoder_layers=1, decoder_layers=1) for _ in range(2))
    compiled.compile(backend="eager")
    compiled(*batch)
    mask = HeadMask.removing({"decoder.0.cross": [3], "encoder.0.self": range(4)}, plain)
    torch.testing.assert_close(prune_heads(compiled, mask)(*batch), prune_heads(plain, mask)(*batch), rtol=0, atol=1e-5)
    torch.compiler.reset()


def test_a12_one_graph_holds_the_whole_model(small_model, batch):
    model = small_model(encoder_layers=1, decoder_layers=1, dropout=0.1)
    model.add_gates("hard_concrete")
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(*batch), model(*batch), rtol=0, atol=1e-5)
    assert not torch.equal(compiled.train()(*batch), compiled(*batch))
    torch.compiler.reset()


# The tokenizer

PAIRS = [
    (f"ein {noun} läuft", f"a {other} runs") for noun, other in (("hund", "dog"), ("mann", "man"), ("bär", "bear"))
]


@pytest.fixture
def with_tokenizer(small_model, tmp_path):
    """A model with a tokenizer of its size, and its export."""
    tokenizer = Tokenizer.train(PAIRS, kind="words", joint=False)
    sizes = {"source_vocab_size": tokenizer.source_vocab_size, "target_vocab_size": tokenizer.target_vocab_size}
    model = small_model(**sizes)
    model.tokenizer = tokenizer
    model.save_pretrained(tmp_path / "export")
    return model, tmp_path / "export"


def test_c11_an_export_holds_its_tokenizer(with_tokenizer):
    model, directory = with_tokenizer
    assert {path.name for path in directory.iterdir()} == FILES | {"tokenizer.json"}
    loaded = Transformer.from_pretrained(directory)
    assert (
        loaded.tokenizer.hash
        == model.tokenizer.hash
        == json.loads((directory / "config.json").read_text())["tokenizer_hash"]
    )
    for source, target in PAIRS:
        assert loaded.tokenizer.encode_source(source) == model.tokenizer.encode_source(source)
        assert loaded.tokenizer.decode_target(model.tokenizer.encode_target(target)) == target
    pruned = prune_heads(loaded, HeadMask.removing({"encoder.0.self": [0]}, loaded))
    assert pruned.tokenizer is loaded.tokenizer
    assert pickle.loads(pickle.dumps(loaded)).tokenizer.hash == loaded.tokenizer.hash


def test_c11_a_tokenizer_with_two_entries_swapped_is_refused(with_tokenizer):
    model, directory = with_tokenizer
    content = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = content["source"]["model"]["vocab"]
    vocabulary["hund"], vocabulary["mann"] = vocabulary["mann"], vocabulary["hund"]
    (directory / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    swapped = Tokenizer.load(directory / "tokenizer.json")
    assert swapped.source_vocab_size == model.tokenizer.source_vocab_size
    with pytest.raises(ValueError) as caught:
        Transformer.from_pretrained(directory)
    message = str(caught.value)
    assert model.tokenizer.hash in message and swapped.hash in message and "tokenizer.json" in message
    assert "\n" not in message


def test_c11_a_tokenizer_that_is_gone_is_named(with_tokenizer):
    _, directory = with_tokenizer
    (directory / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"tokenizer.json does not exist"):
        Transformer.from_pretrained(directory)


# What cannot be read


def refusal(error, source):
    with pytest.raises(error) as caught:
        Transformer.from_pretrained(source)
    assert "\n" not in str(caught.value) and not isinstance(caught.value, UnicodeError | json.JSONDecodeError)
    return str(caught.value)


def test_a_directory_that_is_no_export_is_named(tmp_path, export):
    allowed = "an export is a directory with config.json and model.safetensors"
    assert refusal(FileNotFoundError, tmp_path / "none") == f"{tmp_path / 'none'}: no such directory; {allowed}"
    assert refusal(FileNotFoundError, "/no/such/place") == f"/no/such/place: no such directory; {allowed}"
    assert refusal(FileNotFoundError, "none") == f"none: no such directory; {allowed}"
    (tmp_path / "empty").mkdir()
    assert (
        refusal(FileNotFoundError, tmp_path / "empty") == f"{tmp_path / 'empty'}: not an export, it has no config.json"
    )
    file = export / "README.md"
    assert refusal(FileNotFoundError, file) == f"{file}: no such directory; {allowed}"
    (export / "model.safetensors").unlink()
    assert refusal(FileNotFoundError, export) == f"{export}: not a whole export, it has no model.safetensors"


def test_a_name_that_no_hub_can_have_is_no_directory(monkeypatch):
    assert refusal(FileNotFoundError, "runs/my export").startswith("runs/my export: no such directory")


@pytest.mark.parametrize("share", [0, 4, 9, 300, 0.5, 0.999])
def test_truncated_weights_are_refused(export, share):
    path = export / "model.safetensors"
    content = path.read_bytes()
    size = share if isinstance(share, int) else int(share * len(content))
    path.write_bytes(content[:size])
    message = refusal(ValueError, export)
    assert message.startswith(f"{path}: not readable as safetensors, perhaps cut short ({size} bytes; ")


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"model_type": "prune_lab", "d_mod', b"\xff\xfe", b"[1]", b"{}", b'{"model_type": "bert"}']
)
def test_a_config_that_is_none_is_refused(export, content):
    path = export / "config.json"
    path.write_bytes(content)
    assert refusal(ValueError, export).startswith(f"{path}: not ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention": "multihead"}, "attention: 'multihead' is unknown; allowed are "),
        (
            {"attention": {"name": "multi_head", "options": {"depth": 3}}},
            "attention.options of multi_head: unknown option 'depth'; allowed are value_head_dim",
        ),
        ({"d_modle": 32}, "model: unknown key 'd_modle'; allowed are source_vocab_size, "),
        (
            {"encoder_heads": 5, "encoder_head_dim": None},
            "model.d_model: 32 is not divisible by model.encoder_heads: 5",
        ),
        ({"dropout": "0.1"}, "model.dropout: '0.1'; allowed are numbers from 0 to below 1"),
        ({"norm": ["pre"]}, "model.norm: ['pre']; allowed are pre, post"),
        (
            {"heads": {"encoder.0.self": 3}},
            "model.heads of encoder.0.self: 3; allowed are ascending numbers from 0 to 3",
        ),
        ({"gates": {"name": "soft"}}, "gates: 'soft' is unknown; allowed are fixed, hard_concrete"),
        (
            {"gates": {"name": "hard_concrete", "options": {"beta": 1}}},
            "gates.options.beta: unknown for hard_concrete",
        ),
        ({"format_version": 2}, "format_version: 2; this version of prune_lab reads 1"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_name_file_key_and_value(export, change, message):
    path = export / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert refusal(ValueError, export).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"heads": {"encoder.0.self": [0, 1]}},
            "tensor 'encoder.layers.0.self_attention.head_mask' has shape [4]; config.json asks for [2]",
        ),
        (
            {"d_feed_forward": 47},
            "tensor 'encoder.layers.0.feed_forward.inner.weight' has shape [48, 32]; config.json asks for [47, 32]",
        ),
        (
            {"encoder_layers": 1},
            "tensor 'encoder.layers.1.feed_forward.inner.bias' is not part of the model that config.json describes",
        ),
        ({"encoder_layers": 3}, "tensor 'encoder.layers.2."),
        (
            {"gates": {"name": "hard_concrete"}},
            "tensor 'encoder.layers.0.self_attention.gate.log_a' of shape [4] is missing",
        ),
    ],
    ids=str,
)
def test_weights_of_another_model_are_refused(export, change, message):
    path = export / "config.json"
    values = json.loads(path.read_text()) | {"heads": None} | change
    path.write_text(json.dumps(values))
    assert refusal(ValueError, export).startswith(f"{export / 'model.safetensors'}: {message}")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_no_numbers_are_refused(export, value):
    path = export / "model.safetensors"
    weights = load_file(path)
    weights["encoder.layers.0.feed_forward.inner.bias"][3] = value
    save_file(weights, path)
    message = r"model.safetensors: tensor 'encoder.layers.0.feed_forward.inner.bias' holds NaN or infinity; allowed"
    with pytest.raises(ValueError, match=message):
        Transformer.from_pretrained(export)


def test_no_export_is_written_over_a_file(small_model, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(
        ValueError, match=r"file: is a file; an export is a directory with config.json and model.safetensors"
    ):
        small_model().save_pretrained(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_read_config_gives_the_settings(export):
    values = read_config(export)
    assert values["d_model"] == 32 and "model_type" not in values


# The hub


class Hub:
    """Takes what would be uploaded."""

    def __init__(self, **_):
        pass

    def create_repo(self, repo_id, **_):
        return type("Repository", (), {"repo_id": repo_id})

    def upload_folder(self, *, repo_id, folder_path, **_):
        return f"{repo_id}: {', '.join(sorted(path.name for path in Path(folder_path).iterdir()))}"


@pytest.mark.parametrize("way", ["push_to_hub", "save_pretrained"])
def test_models_can_be_pushed_to_the_hub(with_tokenizer, tmp_path, monkeypatch, way):
    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", Hub)
    model, _ = with_tokenizer
    if way == "push_to_hub":
        address = model.push_to_hub("owner/name")
    else:
        address = model.save_pretrained(tmp_path / "again", push_to_hub=True, repo_id="owner/name", private=True)
        assert (tmp_path / "again" / "config.json").is_file()
    assert address == "owner/name: README.md, config.json, model.safetensors, tokenizer.json"


def test_an_id_of_the_hub_is_downloaded(export, monkeypatch, batch, small_model):
    asked = {}

    def snapshot_download(source, **settings):
        asked.update(settings, source=source)
        return str(export)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    loaded = Transformer.from_pretrained("owner/name", revision="v1")
    assert torch.equal(loaded(*batch), small_model()(*batch))
    assert asked["source"] == "owner/name" and asked["revision"] == "v1"
    assert set(asked["allow_patterns"]) == FILES | {"tokenizer.json"}
