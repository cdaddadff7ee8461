"""Beam search of prune_lab and of other toolkits on the same weights, in turn: sentences per second, and ratios.

    python tests/benchmarks/decoding.py --data DIR --export EXPORT [--beam 5] [--batch 64] [--rounds 5] [--threads 2]
    python tests/benchmarks/decoding.py --data DIR --size tiny

DIR holds Multi30k; test_2016_flickr is decoded in batches sorted by length. EXPORT is a model of prune_lab with all its
heads, ReLU, sinusoidal positions and one table. With a size instead, the weights are random, the norms come after the
blocks, and every translation is 25 tokens long. Marian takes part where its norms come after the blocks. Length
penalties of the toolkits differ a little, so their outputs do: how many are the same is said. CTranslate2 is measured
with all threads on one batch after the other ("shared") and with batches searched at once, a thread each ("batches").
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import peers
import torch
import weights
from in_turn import time_processes
from sizes import SIZES, tokenizer_of

from prune_lab.allocator import keep_freed_memory
from prune_lab.data.corpus import read_pairs
from prune_lab.decoding.options import DecodingOptions
from prune_lab.evaluation.batch_search import search_batches
from prune_lab.evaluation.timing import speed_ratio
from prune_lab.model.transformer import Transformer

Search = Callable[[], list[list[int]]]
# Longest translation of S source tokens, the end mark left out: a + b * S.
MAX_LENGTHS = {"trained": (10, 1.5), "random": (25, 0.0)}


def source_batches(model: Transformer, data: Path, size: int, number: int | None) -> list[list[list[int]]]:
    """Ids of the test sentences with their end marks, sorted by length, in batches."""
    lines = [
        source
        for source, _ in read_pairs(
            data / "test_2016_flickr.lc.norm.tok.en.gz", data / "test_2016_flickr.lc.norm.tok.de.gz"
        )
    ]
    assert model.tokenizer is not None
    sources = sorted(model.tokenizer.encode_sources(lines[:number]), key=len, reverse=True)
    return [sources[start : start + size] for start in range(0, len(sources), size)]


def random_export(directory: str, data: Path, size: str) -> None:
    """An untrained model that no toolkit ends a translation with, since the end mark is always improbable."""
    tokenizer = tokenizer_of(data, 10_000)
    torch.manual_seed(0)
    model = Transformer(SIZES[size].config(tokenizer.source_vocab_size, norm="post"))
    away = torch.nn.functional.normalize(torch.randn(model.config.d_model), dim=0)
    with torch.no_grad():
        model.decoder.layers[-1].feed_forward_residual.norm.bias.copy_(6 * away)
        # Nor does any of them say the other marks, which not all forbid.
        model.source_table.weight[[model.config.eos_id, model.config.unk_id, model.config.bos_id]] = -3 * away
    model.tokenizer = tokenizer
    model.save_pretrained(directory)


def build(
    name: str, export: str, data: str, beam: int, batch: int, number: int | None, threads: int, weights_are: str
) -> Search:
    """The search of a toolkit, in its process."""
    torch.set_num_threads(threads)
    model = Transformer.from_pretrained(export).eval()
    batches = source_batches(model, Path(data), batch, number)
    makers = {
        "prune_lab": own,
        "joeynmt": joeynmt,
        "marian": marian,
        "ctranslate2": ctranslate2,
    }
    toolkit, *words = name.split()
    return makers[toolkit](model, batches, *words, beam=beam, threads=threads, limit=MAX_LENGTHS[weights_are])


def longest(limit: tuple[int, float], batch: list[list[int]]) -> int:
    """Tokens of the longest translation in a batch."""
    return int(limit[0] + limit[1] * (len(batch[0]) - 1))


def own(model: Transformer, batches: Any, products: str = "float32", *, beam: int, threads: int, limit: Any) -> Search:
    """prune_lab, as it translates lines."""
    keep_freed_memory()
    options = DecodingOptions(
        beam_size=beam, length_penalty=0.6, max_length_a=limit[0], max_length_b=limit[1], products=products
    )

    def search() -> list[list[int]]:
        found = search_batches(model, [padded(batch) for batch in batches], options)
        return [ids for hypotheses in found for ids in hypotheses.ids]

    return search


def joeynmt(model: Transformer, batches: Any, *, beam: int, threads: int, limit: Any) -> Search:
    """joeynmt, whose length penalty is the same formula."""
    from joeynmt.search import beam_search

    other = weights.to_joeynmt(model)

    @torch.no_grad()
    def search() -> list[list[int]]:
        found = []
        for batch in batches:
            source = peers.joeynmt_ids(padded(batch))
            mask = (source != 1).unsqueeze(1)
            encoded, hidden, _, _ = other(
                return_type="encode", src=source, src_length=(source != 1).sum(1), src_mask=mask
            )
            ids, _, _ = beam_search(other, beam, encoded, hidden, mask, longest(limit, batch), 0.6, generate_unk=False)
            for row in ids:
                words = [{0: 3, 1: 0, 2: 1, 3: 2}.get(int(number), int(number)) for number in row]
                found.append(words[: words.index(2)] if 2 in words else [number for number in words if number])
        return found

    return search


def marian(model: Transformer, batches: Any, *, beam: int, threads: int, limit: Any) -> Search:
    """transformers: its length penalty divides by the length to a power."""
    other = weights.to_marian(model)

    @torch.inference_mode()
    def search() -> list[list[int]]:
        found = []
        for batch in batches:
            ids = padded(batch)
            rows = other.generate(
                input_ids=ids,
                attention_mask=(ids != 0).long(),
                num_beams=beam,
                length_penalty=0.6,
                early_stopping=True,
                max_new_tokens=longest(limit, batch),
                bad_words_ids=[[0], [3]],
            ).tolist()
            found += [row[1 : row.index(2, 1)] if 2 in row[1:] else row[1:] for row in rows]
        return found

    return search


def ctranslate2(
    model: Transformer, batches: Any, kind: str, how: str, *, beam: int, threads: int, limit: Any
) -> Search:
    """CTranslate2: its length penalty divides by the length to a power."""
    at_once = threads if how == "batches" else 1
    translator = weights.to_ctranslate2(model, kind, inter_threads=at_once, intra_threads=threads // at_once)
    as_tokens = [[[f"t{number}" if number != 3 else "<unk>" for number in ids] for ids in batch] for batch in batches]

    def search() -> list[list[int]]:
        given = [
            translator.translate_batch(
                batch,
                beam_size=beam,
                length_penalty=0.6,
                max_decoding_length=longest(limit, batch),
                disable_unk=True,
                max_batch_size=0,
                asynchronous=at_once > 1,
            )
            for batch in as_tokens
        ]
        results = [each.result() if at_once > 1 else each for results in given for each in results]
        return [[int(token[1:]) for token in result.hypotheses[0]] for result in results]

    return search


def padded(batch: list[list[int]]) -> torch.Tensor:
    """[B, S]."""
    longest = max(map(len, batch))
    return torch.tensor([ids + [0] * (longest - len(ids)) for ids in batch])


def main() -> None:
    """Prints a table and writes it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    weights_from = parser.add_mutually_exclusive_group(required=True)
    weights_from.add_argument("--export")
    weights_from.add_argument("--size", choices=SIZES)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--number", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--output", type=Path, default=Path("decoding_speed.json"))
    given = parser.parse_args()
    if given.export is not None:
        compare(given, given.export, "trained")
        return
    with tempfile.TemporaryDirectory() as directory:
        random_export(directory, given.data, given.size)
        compare(given, directory, "random")


def compare(given: argparse.Namespace, export: str, weights_are: str) -> None:
    """Measures all toolkits with the weights of an export."""
    model = Transformer.from_pretrained(export)
    kinds = [f"ctranslate2 {kind} {how}" for kind in ("float32", "int8") for how in ("shared", "batches")]
    names = ["joeynmt", *kinds, "prune_lab", "prune_lab bfloat16", "prune_lab int8"]
    if model.config.norm == "post":
        names.insert(1, "marian")
    names = [name for name in names if given.only is None or name in given.only]
    shared = {
        "export": export,
        "weights_are": weights_are,
        "data": str(given.data),
        "beam": given.beam,
        "batch": given.batch,
    }
    shared |= {"number": given.number, "threads": given.threads}
    lengths = {}
    for name in names:
        found = build(name, **shared)()
        lengths[name] = found
    reference = lengths["prune_lab"] if "prune_lab" in lengths else next(iter(lengths.values()))
    for name, found in lengths.items():
        same = np.mean([one == other for one, other in zip(found, reference, strict=True)])
        print(f"{name:28} mean length {np.mean([len(ids) for ids in found]):.2f}, {100 * same:.1f} % as prune_lab")
    seconds = time_processes(
        {name: (build, {"name": name, **shared}) for name in names}, warm_up=1, repeats=given.rounds
    )
    results = {}
    for name, taken in seconds.items():
        median, num = statistics.median(taken), len(reference)
        ratios = {other: speed_ratio(taken, seconds[other]) for other in seconds if other != name}
        results[name] = {"seconds": taken, "sentences_per_second": num / median, "ratios": ratios}
        shown = "  ".join(f"x{ratio['median']:.2f} {other}" for other, ratio in ratios.items())
        print(f"{name:28} {num / median:8.1f} ({num / max(taken):.1f} to {num / min(taken):.1f})  {shown}")
    given.output.write_text(json.dumps({"num_sentences": len(reference), "results": results}, indent=1))


if __name__ == "__main__":
    main()
