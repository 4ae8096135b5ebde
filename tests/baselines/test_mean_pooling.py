"""Mean pooling ties its output weights to the word vectors."""

from __future__ import annotations

from baselines.decoders import pooled


def test_mean_pooling_says_words_by_the_vectors_that_it_reads_them_by() -> None:
    model = pooled()
    model.load_state_dict(model.state_dict())
    assert model.decode.say.weight is model.clip_encoder.embedding.weight
