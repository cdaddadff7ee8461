"""What a training step keeps in memory."""

import torch
from torch.nn import functional

from prune_lab.data.batching import Batch
from prune_lab.evaluation.memory import peak_memory
from prune_lab.model.config import ModelConfig
from prune_lab.model.transformer import Transformer
from prune_lab.training.loss import BatchLoss

CPU = torch.device("cpu")


def test_a_step_takes_at_most_0_6_of_one_with_all_logits() -> None:
    """The tiny model with 10 000 entries, and 4096 target tokens."""
    torch.manual_seed(0)
    sizes = {"source_vocab_size": 10_000, "target_vocab_size": 10_000, "d_model": 128, "d_feed_forward": 256}
    stacks = {"encoder_layers": 4, "decoder_layers": 4, "encoder_heads": 4, "decoder_heads": 4}
    model = Transformer(ModelConfig(**sizes, **stacks, dropout=0.3, share_embeddings=True)).train()
    ids = torch.randint(4, 10_000, (256, 17))
    batch = Batch(source_ids=ids[:, 1:], target_ids=ids)

    def with_all_logits() -> None:
        logits = model(batch.source_ids, batch.target_ids[:, :-1])
        gold = batch.target_ids[:, 1:].flatten()
        functional.cross_entropy(logits.flatten(0, 1), gold, ignore_index=0, label_smoothing=0.1).backward()
        model.zero_grad()

    def own() -> None:
        loss, _ = BatchLoss(model, label_smoothing=0.1)(batch)
        (loss / batch.num_target_tokens).backward()
        model.zero_grad()

    assert peak_memory(own, CPU) <= 0.6 * peak_memory(with_all_logits, CPU)
