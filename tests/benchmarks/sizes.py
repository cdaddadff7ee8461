"""What all toolkits get: sizes, vocabulary, batches and threads."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prune_lab.data.batching import Batch, EncodedCorpus, token_budget_batches
from prune_lab.data.corpus import read_pairs
from prune_lab.data.tokenizer import Tokenizer
from prune_lab.model.config import ModelConfig

MAX_TOKENS = 4096
DROPOUT = 0.3
LABEL_SMOOTHING = 0.1


@dataclass(frozen=True)
class Size:
    """Layers of each stack, model width, feed-forward width and heads."""

    layers: int
    width: int
    feed_forward: int
    heads: int

    def config(self, vocab_size: int, dropout: float = DROPOUT, norm: str = "pre") -> ModelConfig:
        """The same for prune_lab."""
        return ModelConfig(
            source_vocab_size=vocab_size,
            target_vocab_size=vocab_size,
            d_model=self.width,
            d_feed_forward=self.feed_forward,
            encoder_layers=self.layers,
            decoder_layers=self.layers,
            encoder_heads=self.heads,
            decoder_heads=self.heads,
            dropout=dropout,
            norm=norm,
            share_embeddings=True,
            tie_output=True,
        )


SIZES = {"tiny": Size(4, 128, 256, 4), "larger": Size(6, 256, 1024, 8)}


def tokenizer_of(directory: Path, vocab_size: int) -> Tokenizer:
    """Joint byte pairs of the tokenised Multi30k training text."""
    return Tokenizer.train(training_pairs(directory), kind="bpe", vocab_size=vocab_size, split_punctuation=False)


def training_pairs(directory: Path) -> list[tuple[str, str]]:
    """Multi30k English-German, tokenised."""
    return read_pairs(directory / "train.lc.norm.tok.en.gz", directory / "train.lc.norm.tok.de.gz")


def training_batches(directory: Path, tokenizer: Tokenizer, number: int) -> list[Batch]:
    """Batches of 4096 tokens, evenly over the lengths."""
    corpus = EncodedCorpus.encode(tokenizer, training_pairs(directory))
    groups = token_budget_batches(corpus.source_lengths, corpus.target_lengths, MAX_TOKENS)
    chosen = np.linspace(0, len(groups) - 1, number + 2)[1:-1].round().astype(int)
    return [corpus.batch(groups[index]) for index in chosen]


def parser_of(description: str | None, *, rounds: int, output: str) -> argparse.ArgumentParser:
    """What the scripts that train are told on the command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--vocabulary", type=int, default=10_000)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path(output))
    return parser
