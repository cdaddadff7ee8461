"""Small models and text for tests of criteria."""

import torch

from prune_lab.data.batching import Batch, collate
from prune_lab.gates.penalty import L0Penalty
from prune_lab.heads import HeadScores
from prune_lab.model.config import ModelConfig
from prune_lab.model.transformer import Transformer

LENGTHS = (3, 5, 9, 12, 18, 25, 31, 40)
# Options with which a criterion is fast enough for tests of what all criteria have in common.
CHEAP = {"shapley": {"max_permutations": 2}}


def small_model(seed: int = 0, **changes) -> Transformer:
    """2+2 layers, D 32, 4 heads of width 8, biases random and not zero: 24 heads at 6 sites."""
    torch.manual_seed(seed)
    sizes = {"source_vocab_size": 50, "target_vocab_size": 60, "d_model": 32, "d_feed_forward": 64, "dropout": 0.1}
    sizes |= {"encoder_layers": 2, "decoder_layers": 2, "encoder_heads": 4, "decoder_heads": 4}
    model = Transformer(ModelConfig(**(sizes | changes)))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.2)
    return model.eval()


def gated_model(evaluation: str = "fraction") -> Transformer:
    model = small_model()
    model.add_gates("hard_concrete", options={"evaluation": evaluation})
    with torch.no_grad():
        for gate in model.gates().values():
            gate.log_a.copy_(torch.tensor([-4.0, -0.5, 0.7, 1.5]))
    return model


def helpful_model(idle: dict[str, list[int]], seed: int = 0) -> tuple[Transformer, Batch]:
    """A model whose heads help, whatever others there are, all but those that are named, and a text that it knows.

    Each head that helps adds some of one direction to what it reads, the more of it there is already, and with it rises
    the logit of the one token that all targets are. Token vectors have nothing of it. All else is random: what heads do
    beside it as well, to a third of the usual size. The other heads have output rows of zeros.
    """
    model = small_model(seed, tie_output=False, dropout=0.0)
    direction = torch.randn(32, generator=torch.Generator().manual_seed(seed))
    direction = torch.nn.functional.normalize(direction - direction.mean(), dim=0)  # layer norms leave it as it is
    with torch.no_grad():
        for table in (model.source_table, model.target_table):
            table.weight -= torch.outer(table.weight @ direction, direction)
        for name, site in model.attention_sites().items():
            attention = site.attention
            attention.output.weight *= 0.3
            signal = range(0, 32, 8)  # the first channel of each head
            attention.value.weight[signal] = 0.5 * direction
            attention.value.bias[signal] = 1.0
            attention.output.weight[:, signal] = 0.7 * direction[:, None]
            attention.head_matrices()[1][idle.get(name, [])] = 0
        model.output_weight[5] = direction
    pairs = [(source, [1, *[5] * (len(target) - 1)]) for source, target in examples()]
    return model, collate(pairs)


def train_gates(model: Transformer, batch: Batch, updates: int = 60) -> None:
    """Gates at all sites, trained on the loss per token with an L0 penalty, and nothing else."""
    model.add_gates("hard_concrete", options={"init": 0.5})
    generator = torch.Generator().manual_seed(1)
    for gate in model.gates().values():
        gate.generator = generator
    penalty, optimizer = L0Penalty(weight=0.002), torch.optim.Adam([g.log_a for g in model.gates().values()], lr=0.1)
    model.train()
    for update in range(updates):
        loss = sentence_losses(model, batch, {}).sum() / (batch.target_ids[:, 1:] != 0).sum() + penalty(model, update)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()


def examples(lengths=LENGTHS, seed: int = 1) -> list[tuple[list[int], list[int]]]:
    generator = torch.Generator().manual_seed(seed)
    draw = lambda num, size: torch.randint(4, size, (num,), generator=generator).tolist()  # noqa: E731
    return [([*draw(num, 50), 2], [1, *draw(num + 2, 60), 2]) for num in lengths]


def flat(scores: HeadScores) -> torch.Tensor:
    return torch.tensor([value for heads in scores.values.values() for value in heads.values()], dtype=torch.float64)


def assert_close(left: HeadScores, right: HeadScores, relative: float) -> None:
    torch.testing.assert_close(flat(left), flat(right), rtol=relative, atol=1e-9)


def sentence_losses(model: Transformer, batch: Batch, head_gates: dict[str, torch.Tensor]) -> torch.Tensor:
    """The summed negative log-likelihood of each sentence [B], the plain way."""
    logits = model(batch.source_ids, batch.target_ids[:, :-1], head_gates)
    targets = batch.target_ids[:, 1:]
    nll = -torch.log_softmax(logits, -1).gather(-1, targets[..., None])[..., 0]
    return (nll * (targets != 0)).sum(1)
