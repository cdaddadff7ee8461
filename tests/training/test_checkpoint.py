"""Reading checkpoints: models, averages, and files that are none."""

import pytest
import torch

from prune_lab.training.checkpoint import load_checkpoint, load_model, model_from_checkpoint


@pytest.fixture(scope="module")
def run(task, train, tmp_path_factory):
    directory = tmp_path_factory.mktemp("run")
    return train(task.model(), directory, max_steps=10, average_decay=0.9, keep="last").model, directory


def test_a_checkpoint_gives_the_model_it_was_validated_with(task, run):
    model, directory = run
    loaded = model_from_checkpoint(directory / "last.ckpt")
    torch.testing.assert_close(loaded.state_dict(), model.state_dict(), rtol=0, atol=0)
    assert loaded.config == model.config and loaded.tokenizer.hash == task.tokenizer.hash
    assert not loaded.training


def test_checkpoints_and_exports_are_loaded_alike(run, tmp_path):
    model, directory = run
    model.save_pretrained(tmp_path / "export")
    for source in (tmp_path / "export", directory / "last.ckpt", str(directory / "last.ckpt")):
        torch.testing.assert_close(load_model(source).state_dict(), model.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.999])
def test_a_file_that_was_cut_short(run, tmp_path, share):
    content = (run[1] / "last.ckpt").read_bytes()
    path = tmp_path / "short.ckpt"
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match="short.ckpt: not readable as a checkpoint, perhaps cut short") as error:
        load_model(path)
    assert "\n" not in str(error.value)


def test_files_that_are_no_checkpoints(tmp_path):
    path = tmp_path / "other.ckpt"
    torch.save({"weights": torch.zeros(3)}, path)
    with pytest.raises(ValueError, match="other.ckpt: not a checkpoint of prune_lab"):
        load_checkpoint(path)
    torch.save([1, 2], path)
    with pytest.raises(ValueError, match="other.ckpt: not a checkpoint of prune_lab"):
        load_checkpoint(path)
    path.write_text("update,name,value\n", encoding="utf-8")
    with pytest.raises(ValueError, match="other.ckpt: not readable") as error:
        load_checkpoint(path)
    assert "\n" not in str(error.value)
    with pytest.raises(FileNotFoundError, match="none.ckpt: no such checkpoint"):
        load_model(tmp_path / "none.ckpt")
    with pytest.raises(FileNotFoundError, match="no such checkpoint"):
        load_checkpoint(tmp_path)


# Weights that are missing come from the average.
MASK = "encoder.layers.0.self_attention.head_mask"


def without(key):
    def change(content):
        *parents, last = key.split("/")
        for parent in parents:
            content = content[parent]
        del content[last]

    return change


def with_value(key, value):
    def change(content):
        *parents, last = key.split("/")
        for parent in parents:
            content = content[parent]
        content[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("state_dict"), "not a whole checkpoint, it lacks state_dict"),
        (without("optimizer_states"), "not a whole checkpoint, it lacks optimizer_states"),
        (without("prune_lab/config"), "not a whole checkpoint, it lacks prune_lab.config"),
        (without("prune_lab/tokenizer"), "not a whole checkpoint, it lacks prune_lab.tokenizer"),
        (with_value("prune_lab", None), "not a whole checkpoint, it lacks prune_lab.config"),
        (with_value("prune_lab/average", 3), "not a whole checkpoint, it lacks prune_lab.average"),
        (without("prune_lab/config/source_vocab_size"), "model: key 'source_vocab_size' is missing"),
        (with_value("prune_lab/config/d_model", "wide"), "model.d_model: 'wide'; allowed are whole numbers from 1"),
        (with_value("prune_lab/tokenizer/kind", "letters"), "kind is 'letters'; allowed: bpe, words"),
        (without("prune_lab/tokenizer/joint"), "key 'joint' is missing"),
        (without(f"state_dict/model.{MASK}"), f"tensor '{MASK}' of shape [4] is missing"),
        (with_value(f"state_dict/model.{MASK}", 3), f"'{MASK}' is a int; allowed is a tensor"),
        (with_value(f"state_dict/model.{MASK}", torch.ones(4)), f"tensor '{MASK}' holds float32; allowed here is bool"),
        (
            with_value("prune_lab/config/d_feed_forward", 10_000_000),
            "tensor 'encoder.layers.0.feed_forward.inner.weight' has shape",
        ),
    ],
)
def test_a_checkpoint_that_lacks_a_part_is_named_with_it(run, tmp_path, change, message):
    content = torch.load(run[1] / "last.ckpt", weights_only=True)
    change(content)
    path = tmp_path / "last.ckpt"
    torch.save(content, path)
    with pytest.raises(ValueError) as error:
        load_model(path)
    assert str(error.value).startswith(f"{path}: {message}") and "\n" not in str(error.value)


def test_code_in_a_checkpoint_is_not_run(tmp_path):
    path = tmp_path / "code.ckpt"
    torch.save({"prune_lab": print}, path)
    with pytest.raises(ValueError, match="code.ckpt: not readable"):
        load_checkpoint(path)
