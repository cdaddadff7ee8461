"""Setups of tiny studies, made in Python: a model with six heads and a few updates for everything."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from prune_lab.data.splits import Splits, load_splits
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.decoding.options import DecodingOptions
from prune_lab.model.config import ModelConfig
from prune_lab.study import stages
from prune_lab.study.plan import Plan
from prune_lab.study.run import run_study
from prune_lab.study.setup import StudySetup
from prune_lab.training.fit import FitSettings, Seeds
from prune_lab.training.schedules import constant

SEARCH = {"max_length_a": 4, "max_length_b": 0.2}
TUNING = {"updates": 4, "recovery_updates": 2, "learning_rate": 2e-3}


@pytest.fixture(scope="session")
def splits() -> Splits:
    """A few sentences of the synthetic language pair."""
    sizes = {split: {"num_pairs": num} for split, num in (("train", 120), ("validation", 6), ("test", 8))}
    languages = {"source_language": "source", "target_language": "target"}
    return load_splits(
        {"name": "synthetic", "kind": "synthetic", "seed": 1, "score_tokenize": "none", **languages, **sizes}
    )


@pytest.fixture(scope="session")
def tokenizer(splits: Splits) -> Tokenizer:
    """Byte-pair encoding of both sides."""
    return Tokenizer.train(splits.train.pairs, kind="bpe", joint=True, vocab_size=120)


@pytest.fixture(scope="session")
def model_config(tokenizer: Tokenizer) -> ModelConfig:
    """One layer a stack, two heads a site: six heads."""
    sizes = {"source_vocab_size": tokenizer.source_vocab_size, "target_vocab_size": tokenizer.target_vocab_size}
    stacks = {"encoder_layers": 1, "decoder_layers": 1, "encoder_heads": 2, "decoder_heads": 2}
    return ModelConfig(**sizes, **stacks, d_model=16, d_feed_forward=16, share_embeddings=True)


@pytest.fixture(scope="session")
def make_setup(splits: Splits, tokenizer: Tokenizer, model_config: ModelConfig) -> Callable[..., StudySetup]:
    """`make_setup({"gradient": {"criterion": "gradient"}}, budgets=[4, 2])`: a setup with these methods."""

    def make(methods: dict[str, Any], *, callbacks: Callable[[], Any] = list, **study: Any) -> StudySetup:
        config = {"name": "tiny", "tuning": TUNING, "budgets": [4, 2], "methods": methods, **study}
        return StudySetup(
            plan=Plan.from_config(config, model_config.original_heads()),
            splits=splits,
            tokenizer=tokenizer,
            model=model_config,
            base=FitSettings(
                optimizer=partial(torch.optim.Adam, lr=4e-3),
                schedule=constant,
                trainer={"accelerator": "cpu", "devices": 1, "max_steps": 4},
                max_tokens=600,
                validate_every=2,
                validation_decoding=DecodingOptions(beam_size=1, **SEARCH),
                gate_learning_rate=0.2,
            ),
            base_seeds=Seeds.all(1),
            decoding=DecodingOptions(beam_size=2, **SEARCH),
            device=torch.device("cpu"),
            config={"study": config, "seed": 1, "model": {"d_model": 16}},
            callbacks=callbacks,
        )

    return make


@pytest.fixture(scope="session")
def based(make_setup: Callable[..., StudySetup], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study's directory with both unpruned models; not to be changed."""
    setup = make_setup({"gradient": {"criterion": "gradient"}})
    unpruned = stages.Stages(setup, tmp_path_factory.mktemp("based"))
    unpruned.base()
    unpruned.continued()
    return unpruned.directory


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Labels of the runs that are trained from now on."""
    labels: list[str] = []
    fit = stages.fit

    def noted(*arguments: Any, **settings: Any) -> Any:
        labels.append(settings["label"])
        return fit(*arguments, **settings)

    monkeypatch.setattr(stages, "fit", noted)
    return labels


def _no_report(patched: pytest.MonkeyPatch) -> None:
    patched.setattr("prune_lab.study.run.write_report", lambda records, directory, **_: directory / "report.html")
    patched.setattr("prune_lab.analysis.sections.figure_files.embed_figure", lambda *_: None)


@pytest.fixture
def without_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figures are drawn, which takes longer than all the rest."""
    _no_report(monkeypatch)


@pytest.fixture(scope="session")
def run_without_report() -> Callable[[StudySetup, Path], None]:
    """`run_study` without figures, for fixtures of a wider scope."""

    def run(setup: StudySetup, directory: Path) -> None:
        with pytest.MonkeyPatch.context() as patched:
            _no_report(patched)
            run_study(setup, directory)

    return run
