"""A model of prune_lab with all its heads, in the weights of other toolkits: the same function, so the same search."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import peers
import torch
from sizes import Size
from torch import Tensor, nn

from prune_lab.model.transformer import Transformer


def size_of(model: Transformer) -> Size:
    """Its sizes; both stacks must be alike."""
    config = model.config
    return Size(config.encoder_layers, config.d_model, config.d_feed_forward, config.encoder_heads)


def _blocks(model: Transformer) -> Iterator[tuple[Any, list[tuple[Any, Any]], Any, Any]]:
    """For each layer: itself, its sites with their norms, the feed-forward block and its norm."""
    for layer in (*model.encoder.layers, *model.decoder.layers):
        sites = [(layer.self_attention.attention, layer.self_residual.norm)]
        if hasattr(layer, "cross_attention"):
            sites.append((layer.cross_attention.attention, layer.cross_residual.norm))
        yield layer, sites, layer.feed_forward, layer.feed_forward_residual.norm


@torch.no_grad()
def to_joeynmt(model: Transformer) -> Any:
    """Any norm; its ids are those of `peers.joeynmt_ids`."""
    other = peers.joeynmt_model(size_of(model), model.config.source_vocab_size, 0.0, model.config.norm).eval()
    order = torch.arange(model.config.source_vocab_size)
    order[:4] = torch.tensor([3, 0, 1, 2])
    other.src_embed.lut.weight.copy_(model.source_table.weight[order])
    for (_, sites, feed_forward, norm), theirs in zip(
        _blocks(model), [*other.encoder.layers, *other.decoder.layers], strict=True
    ):
        names = ["src_src_att"] if hasattr(theirs, "src_src_att") else ["trg_trg_att", "src_trg_att"]
        norms = ["layer_norm"] if len(names) == 1 else ["x_layer_norm", "dec_layer_norm"]
        for (attention, site_norm), name, norm_name in zip(sites, names, norms, strict=True):
            block = getattr(theirs, name)
            for own, other_name in (("query", "q_layer"), ("key", "k_layer"), ("value", "v_layer")):
                _copy(getattr(attention, own), getattr(block, other_name))
            _copy(attention.output, block.output_layer)
            _copy_norm(site_norm, getattr(theirs, norm_name))
        _copy(feed_forward.inner, theirs.feed_forward.pwff_layer[0])
        _copy(feed_forward.outer, theirs.feed_forward.pwff_layer[3])
        _copy_norm(norm, theirs.feed_forward.layer_norm)
    for stack, theirs in ((model.encoder, other.encoder), (model.decoder, other.decoder)):
        if isinstance(stack.norm, nn.LayerNorm):
            _copy_norm(stack.norm, theirs.layer_norm)
    return other


@torch.no_grad()
def to_marian(model: Transformer) -> Any:
    """Post-norm only. Its position vectors have the sines first: ours take their place."""
    if model.config.norm != "post":
        raise ValueError(f"norm: {model.config.norm!r}; Marian has post alone")
    other = peers.marian_model(size_of(model), model.config.source_vocab_size, 0.0).eval()
    other.model.shared.weight.copy_(model.source_table.weight)
    for stack in (other.model.encoder, other.model.decoder):
        positions = stack.embed_positions.weight
        positions.copy_(_positions(model, len(positions)))
    layers = [*other.model.encoder.layers, *other.model.decoder.layers]
    for (_, sites, feed_forward, norm), theirs in zip(_blocks(model), layers, strict=True):
        for (attention, site_norm), name in zip(sites, ("self_attn", "encoder_attn"), strict=False):
            block = getattr(theirs, name)
            for own, other_name in (
                ("query", "q_proj"),
                ("key", "k_proj"),
                ("value", "v_proj"),
                ("output", "out_proj"),
            ):
                _copy(getattr(attention, own), getattr(block, other_name))
            _copy_norm(site_norm, getattr(theirs, f"{name}_layer_norm"))
        _copy(feed_forward.inner, theirs.fc1)
        _copy(feed_forward.outer, theirs.fc2)
        _copy_norm(norm, theirs.final_layer_norm)
    return other


@torch.no_grad()
def to_ctranslate2(model: Transformer, compute_type: str, *, inter_threads: int, intra_threads: int) -> Any:
    """Any norm; tokens are the ids as text."""
    import ctranslate2
    from ctranslate2.specs import transformer_spec

    config = model.config
    spec = transformer_spec.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers), config.encoder_heads, pre_norm=config.norm == "pre"
    )
    table = _array(model.source_table.weight)
    for stack, theirs in ((model.encoder, spec.encoder), (model.decoder, spec.decoder)):
        theirs.position_encodings.encodings = _array(_positions(model, 512))
        if isinstance(stack.norm, nn.LayerNorm):
            _fill_norm(stack.norm, theirs.layer_norm)
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = spec.decoder.projection.weight = table
    layers = [*spec.encoder.layer, *spec.decoder.layer]
    for (_, sites, feed_forward, norm), theirs in zip(_blocks(model), layers, strict=True):
        for (attention, site_norm), name in zip(sites, ("self_attention", "attention"), strict=False):
            block = getattr(theirs, name)
            groups = [["query", "key", "value"]] if name == "self_attention" else [["query"], ["key", "value"]]
            for group, linear in zip([*groups, ["output"]], block.linear, strict=True):
                linear.weight = np.concatenate([_array(getattr(attention, own).weight) for own in group])
                linear.bias = np.concatenate([_array(getattr(attention, own).bias) for own in group])
            _fill_norm(site_norm, block.layer_norm)
        for own, linear in ((feed_forward.inner, theirs.ffn.linear_0), (feed_forward.outer, theirs.ffn.linear_1)):
            linear.weight, linear.bias = _array(own.weight), _array(own.bias)
        _fill_norm(norm, theirs.ffn.layer_norm)
    tokens = [f"t{number}" for number in range(config.source_vocab_size)]
    tokens[peers.UNK] = "<unk>"
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.unk_token, spec.config.bos_token = "<unk>", tokens[peers.BOS]
    spec.config.eos_token = spec.config.decoder_start_token = tokens[peers.EOS]
    spec.config.decoder_start_token = tokens[peers.BOS]
    spec.config.layer_norm_epsilon = 1e-5
    spec.validate()
    with tempfile.TemporaryDirectory() as directory:
        spec.save(directory)
        return ctranslate2.Translator(
            str(Path(directory)),
            device="cpu",
            compute_type=compute_type,
            inter_threads=inter_threads,
            intra_threads=intra_threads,
        )


def _copy(own: Any, other: nn.Linear) -> None:
    other.weight.copy_(own.weight)
    other.bias.copy_(own.bias)


def _copy_norm(own: nn.LayerNorm, other: nn.LayerNorm) -> None:
    other.weight.copy_(own.weight)
    other.bias.copy_(own.bias)
    other.eps = own.eps


def _fill_norm(own: nn.LayerNorm, spec: Any) -> None:
    spec.gamma, spec.beta = _array(own.weight), _array(own.bias)


def _positions(model: Transformer, number: int) -> Tensor:
    from prune_lab.model.embeddings import sinusoidal_positions

    return sinusoidal_positions(number, model.config.d_model)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().numpy()
