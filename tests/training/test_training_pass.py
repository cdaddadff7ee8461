"""Updates that are measured are those that training makes."""

from itertools import islice

import pytest
import torch

from prune_lab.data.datamodule import TranslationData
from prune_lab.training.training_pass import TrainingPass


@pytest.mark.parametrize(("parts", "decay"), [(1, None), (2, None), (2, 0.9)])
def test_a_pass_makes_the_updates_of_fit(task, train, settings, tmp_path, parts, decay):
    asked = {"max_steps": 3, "validate_every": 3, "parts": parts, "keep": "last", "average_decay": decay}
    result, given = train(task.model(), tmp_path, **asked), settings(**asked)
    stream = TranslationData(task.data.train, max_tokens=given.max_tokens, seed=1).batches()
    batches = list(islice(stream, 3))
    model = task.model()
    before = {name: parameter.clone() for name, parameter in model.state_dict().items()}
    update = TrainingPass(model, batches, given)
    assert update.num_target_tokens == sum(batch.num_target_tokens for batch in batches)
    update()
    if update._average is not None:
        update._average.swap()
    trained, expected = update.model.state_dict(), result.model.state_dict()
    for name in expected:
        assert torch.equal(model.state_dict()[name], before[name]), "the model that is given stays as it is"
        if not name.endswith("key.bias"):  # its gradient is rounding alone
            assert not torch.equal(expected[name], before[name]) or "head_mask" in name
            torch.testing.assert_close(trained[name], expected[name], rtol=1e-5, atol=1e-6)
