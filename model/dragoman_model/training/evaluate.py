"""How good a model's translations are: BLEU and chrF (sacreBLEU) and the loss on held-out pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sacrebleu
import torch

from dragoman_model.checkpoint import LoadedModel
from dragoman_model.config import ModelConfig
from dragoman_model.errors import TrainingError
from dragoman_model.tokenizer import Tokenizer
from dragoman_model.training.batching import encode_pairs, group_pairs
from dragoman_model.training.corpus import Pair
from dragoman_model.training.loss import summed_loss
from dragoman_model.transformer import Transformer
from dragoman_model.translator import Translator


@dataclass(frozen=True)
class Scores:
    """BLEU and chrF of translations against one reference each.

    Attributes:
        bleu: 0 to 100.
        bleu_signature: sacreBLEU's, which fixes how it was computed.
        chrf: 0 to 100.
        chrf_signature: Likewise.
    """

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str


@dataclass(frozen=True)
class DevScores:
    """How a model in training does on the dev set.

    Attributes:
        bleu: 0 to 100, greedy search.
        chrf: 0 to 100.
        nats_per_token: Mean negative log-likelihood of a reference token.
    """

    bleu: float
    chrf: float
    nats_per_token: float


def score_translations(hypotheses: Sequence[str], references: Sequence[str]) -> Scores:
    """Returns the scores of ``hypotheses``, one for each reference: 13a tokenisation, cased, sacreBLEU's defaults."""
    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    bleu_score = bleu.corpus_score(list(hypotheses), [list(references)])
    chrf_score = chrf.corpus_score(list(hypotheses), [list(references)])
    return Scores(bleu_score.score, str(bleu.get_signature()), chrf_score.score, str(chrf.get_signature()))


class DevSet:
    """Held-out pairs by which checkpoints are chosen."""

    def __init__(
        self, pairs: Sequence[Pair], tokenizer: Tokenizer, config: ModelConfig, max_batch_tokens: int
    ) -> None:
        """Takes the pairs.

        Args:
            pairs: Held-out pairs.
            tokenizer: The model's vocabulary.
            config: The model's shape.
            max_batch_tokens: Padded tokens of a batch when the loss is computed, at most.

        Raises:
            TrainingError: No pair fits the model's limits.
        """
        # A pair over the limits would end the run at its first evaluation.
        self._pairs = [pair for pair in pairs if encode_pairs([pair], tokenizer, config)]
        if not self._pairs:
            raise TrainingError(
                "no dev pair fits the model; raise dev_size, max_source_length or max_target_length"
            )
        self._tokenizer, self._config = tokenizer, config
        encoded = sorted(
            encode_pairs(pairs, tokenizer, config), key=lambda pair: (len(pair.target), len(pair.source))
        )
        self._batches = list(group_pairs(encoded, max_batch_tokens))

    def score(self, transformer: Transformer) -> DevScores:
        """Returns how ``transformer`` does; it is left in evaluation mode."""
        transformer.eval()
        model = LoadedModel(
            name="in training",
            config=self._config,
            tokenizer=self._tokenizer,
            transformer=transformer,
            digest="",
            device=transformer.device,
            precision="float32",
            parameter_count=0,
        )
        translations = Translator(model, max_batch_size=128).translate([pair.source for pair in self._pairs])
        scores = score_translations([t.text for t in translations], [pair.target for pair in self._pairs])
        with torch.inference_mode():
            nll = sum(
                float(summed_loss(transformer, batch, smoothing=0.0, autocast=False)[1])
                for batch in self._batches
            )
        num_tokens = sum(batch.num_target_tokens for batch in self._batches)
        return DevScores(scores.bleu, scores.chrf, nll / num_tokens)
