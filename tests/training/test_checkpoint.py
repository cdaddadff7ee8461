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


def test_code_in_a_checkpoint_is_not_run(tmp_path):
    path = tmp_path / "code.ckpt"
    torch.save({"prune_lab": print}, path)
    with pytest.raises(ValueError, match="code.ckpt: not readable"):
        load_checkpoint(path)
