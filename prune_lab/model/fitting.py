"""Whether things belong together: stored weights and a tokenizer with a configuration, before a model is built."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from prune_lab.model.config import ModelConfig
from prune_lab.model.transformer import Transformer

if TYPE_CHECKING:
    from prune_lab.data.tokenizer import Tokenizer

# The types that a model can compute in.
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def outline(config: ModelConfig) -> dict[str, Tensor]:
    """The tensors that an export of a model holds, with their shapes and types and without numbers.

    It takes no memory, and a few milliseconds.

    Raises:
        ValueError: options that the attention or the gates do not know.
    """
    return hollow_model(config).state_dict()


def hollow_model(config: ModelConfig) -> Transformer:
    """A model with shapes and without numbers, which costs can be told from; it takes no memory and runs nothing.

    Raises:
        ValueError: options that the attention or the gates do not know.
    """
    is_sinusoidal, built = config.positions == "sinusoidal", config
    if is_sinusoidal:
        # Their table is computed, and not stored; the others need no arithmetic.
        built = dataclasses.replace(config, positions="learned", max_positions=1)
    with torch.device("meta"), _WithoutNumbers():
        model = Transformer(built)
    if is_sinusoidal:
        model.config = copy.deepcopy(config)
        for positions in (model.source_positions, model.target_positions):
            positions.kind, positions.table = config.positions, None
    return model


class _WithoutNumbers(TorchFunctionMode):
    """Skips what gives tensors their first numbers: on the device `meta` nothing comes of it but slow imports."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if getattr(func, "__name__", "") in ("normal_", "uniform_", "zero_"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def check_weights(wanted: Mapping[str, Tensor], weights: Mapping[str, Tensor], source: str, asked_by: str) -> None:
    """Compare tensors with those that a configuration asks for.

    Weights are of one type, that of the embeddings. Gates may have another one.

    Args:
        wanted: the `outline` of the configuration.
        weights: by name.
        source: the file that they are from, for messages.
        asked_by: where the configuration is from.

    Raises:
        ValueError: names the first tensor that is missing, unknown, or of another shape or type.
    """
    for name, tensor in wanted.items():
        shape = list(tensor.shape)
        if name not in weights:
            raise ValueError(f"{source}: tensor {name!r} of shape {shape} is missing")
        if not isinstance(weights[name], Tensor):
            raise ValueError(f"{source}: {name!r} is a {type(weights[name]).__name__}; allowed is a tensor")
        if list(weights[name].shape) != shape:
            found = list(weights[name].shape)
            raise ValueError(f"{source}: tensor {name!r} has shape {found}; {asked_by} asks for {shape}")
    for name in sorted(set(weights) - set(wanted)):
        raise ValueError(f"{source}: tensor {name!r} is not part of the model that {asked_by} describes")
    usual = weights["source_table.weight"].dtype
    for name, tensor in wanted.items():
        kind = weights[name].dtype
        if tensor.dtype == torch.bool:
            allowed: tuple[torch.dtype, ...] = (torch.bool,)
        else:
            allowed = FLOATS if usual not in FLOATS or _is_gate(name) else (usual,)
        if kind not in allowed:
            types = ", ".join(str(each).removeprefix("torch.") for each in allowed)
            shown = str(kind).removeprefix("torch.")
            raise ValueError(f"{source}: tensor {name!r} holds {shown}; allowed here is {types}")


def check_tokenizer(config: ModelConfig, tokenizer: Tokenizer, source: str) -> None:
    """Compare the vocabularies of a tokenizer with those of a model: a model may choose any of its own entries.

    Args:
        config: of the model.
        tokenizer: that is to read and write its text.
        source: where the tokenizer is from, for messages.

    Raises:
        ValueError: names the side and both sizes.
    """
    for side in ("source", "target"):
        has, wanted = getattr(tokenizer, f"{side}_vocab_size"), getattr(config, f"{side}_vocab_size")
        if has != wanted:
            raise ValueError(f"{source}: the tokenizer has {has} {side} entries, the model has {wanted}")


def check_model(model: Any) -> None:
    """ValueError unless it is a model, possibly wrapped by `torch.compile`."""
    if not isinstance(getattr(model, "_orig_mod", model), Transformer):
        raise ValueError(f"model: a {type(model).__name__}; allowed is a Transformer of prune_lab")


def _is_gate(name: str) -> bool:
    return ".gate." in name
