"""A browser for what draws itself in one, a small model that reads text, and models whose costs are counted."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from attention_examples import EXAMPLES, example_id
from chromium import Chromium, find_chromium
from cost_models import BY_KIND, pruned

from prune_lab.data.synthetic import generate
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.model.transformer import Transformer


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A headless Chromium with a profile of its own."""
    executable = find_chromium()
    if executable is None:
        pytest.skip("no chromium on the path, so no page is drawn; on Debian: apt-get install chromium")
    chromium = Chromium(executable, tmp_path_factory.mktemp("chromium"))
    yield chromium
    chromium.close()


@pytest.fixture(scope="session")
def text_pairs() -> list[tuple[str, str]]:
    """Sentence pairs of 3 to 30 words."""
    return [(pair.source, pair.target) for pair in generate(num_pairs=200, seed=1, split="train")]


@pytest.fixture(scope="session")
def text_model(
    small_model: Callable[..., Transformer], text_pairs: list[tuple[str, str]]
) -> Callable[..., Transformer]:
    """Builds the small model of the checks with a tokenizer; `build(seed=0, **settings)` as for `small_model`."""
    tokenizer = Tokenizer.train(text_pairs, kind="bpe", joint=False, vocab_size=150)
    sizes = {"source_vocab_size": tokenizer.source_vocab_size, "target_vocab_size": tokenizer.target_vocab_size}

    def build(seed: int = 0, **settings: Any) -> Transformer:
        model = small_model(seed, **sizes, **settings)
        model.tokenizer = tokenizer
        return model

    return build


@pytest.fixture(params=[*EXAMPLES, BY_KIND], ids=example_id)
def attention(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A variant with options: the defaults, and each of its examples; and another for each kind of site."""
    return request.param


@pytest.fixture(params=["unpruned", "pruned"])
def costed_model(
    request: pytest.FixtureRequest, small_model: Callable[..., Transformer], attention: dict[str, Any]
) -> Transformer:
    """A model of it, whole, and with heads removed at most sites, one of which has none left."""
    whole = small_model(attention=attention)
    return whole if request.param == "unpruned" else pruned(whole)
