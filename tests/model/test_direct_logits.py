import copy

import pytest
import torch

from dragoman_model.batch import RunningBatch
from dragoman_model.direct_logits import direct_logits
from dragoman_model.plan import ForcedDecode, Plan
from dragoman_model.quantization import best_kernel
from dragoman_model.transformer import AttentionRecord, Transformer
from tests.models import tiny_config

SOURCE, TARGET = (9, 30, 41, 7, 2), (12, 50, 33, 8, 61, 70, 2)


@pytest.fixture(params=["pre", "post"])
def transformer(request):
    torch.manual_seed(3)
    return Transformer(tiny_config(num_decoder_layers=2, norm=request.param)).eval()


@torch.no_grad()
def test_they_are_what_a_head_that_looks_at_one_position_adds_to_the_logit(transformer):
    src, tgt = torch.tensor([SOURCE]), torch.tensor([[1, *TARGET[:-1]]])
    mask, record = transformer.source_mask(src), AttentionRecord()
    memory = transformer.encode(src, mask)
    final = transformer.decode_states(tgt, memory, mask, record)[0]  # (T, D)
    (states,) = record.decoder_states
    found = direct_logits(transformer, memory, states, torch.tensor(TARGET), [(1, 1)])
    layer, norm = transformer.decoder[1].cross_attention, transformer.decoder_norm
    _, values = layer.project_keys_values(memory)
    for step, token in enumerate(TARGET):
        state = states[0, step]
        for place in range(len(SOURCE)):
            added = layer.out_proj.weight[:, 8:16] @ values[0, 1, place]  # of head 1, width 8
            if transformer.config.norm == "pre":  # with the state's own scale
                scale = (state.var(unbiased=False) + norm.eps).sqrt()
                moved = final[step] + norm.weight * (added - added.mean()) / scale
            else:
                moved = final[step] + added
            difference = (moved - final[step]) @ transformer.output_weight[token]
            assert found[step, place].item() == pytest.approx(difference.item(), abs=1e-4)


def attend(transformer, *heads):
    forced = ForcedDecode(id=1, source_ids=SOURCE, target_ids=TARGET, heads=heads)
    (output,) = RunningBatch(transformer).run(Plan(attend=(forced,))).attentions
    return output


def test_those_of_several_heads_add_up_and_come_with_the_mean_of_their_attention(transformer):
    both, first, second = (attend(transformer, *heads) for heads in (((0, 1), (1, 0)), ((0, 1),), ((1, 0),)))
    every = attend(transformer)
    torch.testing.assert_close(both.direct_logits, first.direct_logits + second.direct_logits)
    torch.testing.assert_close(both.cross[0, 0], (every.cross[0, 1] + every.cross[1, 0]) / 2)
    assert every.direct_logits is None
    assert both.log_probabilities == every.log_probabilities


def test_a_quantised_model_says_nearly_the_same(transformer):
    quantised = copy.deepcopy(transformer).requires_grad_(False)
    quantised.quantize(best_kernel())
    exact, rounded = (attend(one, (1, 0), (1, 1)).direct_logits for one in (transformer, quantised))
    assert (rounded - exact).abs().max() < 0.05 * exact.abs().max()
    assert not torch.equal(rounded, exact)
