"""The model card of an export."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prune_lab.heads import KINDS, kind_of_site

if TYPE_CHECKING:
    from prune_lab.model.transformer import Transformer


def model_card(model: Transformer) -> str:
    """Markdown with the facts that the model itself knows: sizes, heads that remain, and how to use it."""
    config, heads, original = model.config, model.open_heads(), model.original_heads()
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    lines = [
        "---",
        "library_name: prune_lab",
        "pipeline_tag: translation",
        "tags: [translation, transformer, head-pruning]",
        "---",
        "# Encoder-decoder Transformer",
        "",
        *([] if model.languages is None else [f"Translates {model.languages[0]} to {model.languages[1]}.", ""]),
        f"{config.encoder_layers}+{config.decoder_layers} layers, width {config.d_model}, "
        f"feed-forward {config.d_feed_forward}, {num_parameters:,} parameters; "
        f"{sum(map(len, heads.values()))} of {sum(original.values())} attention heads remain.",
        "",
        "| kind of site | remaining heads | of |",
        "|---|---|---|",
    ]
    for kind in KINDS:
        sites = [site for site in heads if kind_of_site(site) == kind]
        lines.append(
            f"| {kind} | {sum(len(heads[site]) for site in sites)} | {sum(original[site] for site in sites)} |"
        )
    lines += [
        "",
        "Heads by site, with the numbers that they had in the unpruned model:",
        "",
        "| site | heads |",
        "|---|---|",
    ]
    lines += [f"| {site} | {', '.join(map(str, numbers)) or 'none'} |" for site, numbers in heads.items()]
    lines += [
        "",
        "```python",
        "from prune_lab import Translator",
        "",
        'Translator.from_pretrained("PATH").translate(["A sentence."])',
        "```",
        "",
    ]
    return "\n".join(lines)
