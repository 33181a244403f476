"""What one call may ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CallLimits:
    """What one call may hold and ask for.

    Attributes:
        max_text_count: Texts.
        max_text_characters: Unicode code points in each.
        max_beam_size: Beams of a search.
        max_num_hypotheses: Translations returned of each text.
        max_sentence_rows: Rows of the batch that one sentence takes: one for each beam or sample.
    """

    max_text_count: int = 256
    max_text_characters: int = 20_000
    max_beam_size: int = 8
    max_num_hypotheses: int = 8
    max_sentence_rows: int = 8
