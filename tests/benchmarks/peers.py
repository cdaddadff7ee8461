"""The models of other toolkits in given sizes, and an update and a search with each.

Every toolkit gets the same padded batches of ids, the Adam of torch in its fused form, label smoothing 0.1 and its own
loss. joeynmt and torch drop attention weights with the same probability as the rest, as their constructors do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from sizes import DROPOUT, LABEL_SMOOTHING, Size
from torch import Tensor, nn
from torch.nn import functional

from prune_lab.data.batching import Batch

PAD, BOS, EOS, UNK = 0, 1, 2, 3
Update = Callable[[Batch], None]


def adam(parameters: Any) -> torch.optim.Optimizer:
    """What all models here are trained with."""
    return torch.optim.Adam(parameters, lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Backward pass, clipping and optimiser."""
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


# joeynmt


def joeynmt_model(size: Size, vocab_size: int, dropout: float = DROPOUT, norm: str = "pre") -> Any:
    """Its special marks have numbers of their own: see `joeynmt_ids`."""
    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary

    marks = {"pad": 1, "bos": 2, "eos": 3, "unk": 0}
    names = {f"{name}_token": f"<{name}>" for name in marks}
    symbols = SimpleNamespace(
        **names, **{f"{name}_id": number for name, number in marks.items()}, sep_token=None, sep_id=None, lang_tags=[]
    )
    words = Vocabulary([f"word{number}" for number in range(vocab_size - 4)], symbols)
    side = {
        "type": "transformer",
        "num_layers": size.layers,
        "num_heads": size.heads,
        "embeddings": {"embedding_dim": size.width, "scale": True, "dropout": dropout},
        "hidden_size": size.width,
        "ff_size": size.feed_forward,
        "dropout": dropout,
        "layer_norm": norm,
    }
    settings = {
        "initializer": "xavier_uniform",
        "embed_initializer": "xavier_uniform",
        "tied_embeddings": True,
        "tied_softmax": True,
        "encoder": side,
        "decoder": side,
    }
    return build_model(settings, src_vocab=words, trg_vocab=words)


def joeynmt_ids(ids: Tensor) -> Tensor:
    """Ids of prune_lab (pad 0, begin 1, end 2, unknown 3) as joeynmt numbers them."""
    table = torch.arange(max(4, int(ids.max()) + 1))
    table[:4] = torch.tensor([1, 2, 3, 0])
    return table[ids]


def joeynmt_update(size: Size, vocab_size: int) -> Update:
    """As its training loop calls it; it counts correct tokens in every pass."""
    model = joeynmt_model(size, vocab_size).train()
    model.loss_function = ("crossentropy", LABEL_SMOOTHING)
    optimizer = adam(model.parameters())

    def update(batch: Batch) -> None:
        source, target = joeynmt_ids(batch.source_ids), joeynmt_ids(batch.target_ids)
        loss, *_ = model(
            return_type="loss",
            src=source,
            src_mask=(source != 1).unsqueeze(1),
            src_length=(source != 1).sum(1),
            trg_input=target[:, :-1],
            trg=target[:, 1:],
            trg_mask=(target[:, :-1] != 1).unsqueeze(1),
        )
        step(model, optimizer, loss / batch.num_target_tokens)

    return update


# transformers


def marian_model(size: Size, vocab_size: int, dropout: float = DROPOUT) -> Any:
    """Marian has its norms after the blocks, whatever is asked for."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=vocab_size,
        d_model=size.width,
        encoder_layers=size.layers,
        decoder_layers=size.layers,
        encoder_attention_heads=size.heads,
        decoder_attention_heads=size.heads,
        encoder_ffn_dim=size.feed_forward,
        decoder_ffn_dim=size.feed_forward,
        dropout=dropout,
        activation_dropout=dropout,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
        attn_implementation="sdpa",
    )
    return MarianMTModel(config)


def marian_update(size: Size, vocab_size: int) -> Update:
    """With the cross entropy of torch over its logits, since its own knows no label smoothing."""
    model = marian_model(size, vocab_size).train()
    optimizer = adam(model.parameters())

    def update(batch: Batch) -> None:
        found = model(
            input_ids=batch.source_ids,
            attention_mask=(batch.source_ids != PAD).long(),
            decoder_input_ids=batch.target_ids[:, :-1],
            use_cache=False,
        )
        step(model, optimizer, smoothed(found.logits, batch))

    return update


# torch


class TorchTransformer(nn.Module):
    """`torch.nn.Transformer` with scaled embeddings, sinusoidal positions and a tied projection."""

    def __init__(self, size: Size, vocab_size: int, dropout: float = DROPOUT) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, size.width, padding_idx=PAD)
        nn.init.normal_(self.table.weight, std=size.width**-0.5)
        self.dropout = nn.Dropout(dropout)
        self.core = nn.Transformer(
            size.width,
            size.heads,
            size.layers,
            size.layers,
            size.feed_forward,
            dropout,
            batch_first=True,
            norm_first=True,
        )
        angles = torch.arange(512)[:, None] * torch.exp(
            torch.arange(0, size.width, 2) * (-math.log(10000.0) / size.width)
        )
        self.register_buffer("positions", torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits [B, T, V]."""
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        padding = source == PAD
        hidden = self.core(
            self.embed(source),
            self.embed(target),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return functional.linear(hidden, self.table.weight)

    def embed(self, ids: Tensor) -> Tensor:
        """[B, T] -> [B, T, D]."""
        scaled = self.table(ids) * math.sqrt(self.table.embedding_dim)
        return self.dropout(scaled + self.positions[: ids.shape[1]])


def torch_update(size: Size, vocab_size: int) -> Update:
    """With the cross entropy of torch."""
    model = TorchTransformer(size, vocab_size).train()
    optimizer = adam(model.parameters())

    def update(batch: Batch) -> None:
        step(model, optimizer, smoothed(model(batch.source_ids, batch.target_ids[:, :-1]), batch))

    return update


def smoothed(logits: Tensor, batch: Batch) -> Tensor:
    """The mean loss over real target tokens."""
    gold = batch.target_ids[:, 1:].flatten()
    return functional.cross_entropy(logits.flatten(0, 1), gold, ignore_index=PAD, label_smoothing=LABEL_SMOOTHING)


def passes(update: Update, batches: Sequence[Batch], autocast: bool) -> Callable[[], None]:
    """An update with each of the batches; with autocast in bfloat16, torch's own way to shorter products."""

    def run() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            for batch in batches:
                update(batch)

    return run
