"""Scores of all queries with all clips: equal to scoring each pair, in a fraction of the time.

The concept words of a clip are mixed into every word of a query, so a query has to be read again for every
clip. The following computations are shared:

- both sides of the input attention, up to the first gates: per word and per concept word;
- the LSTM input of a word: between all its occurrences in the queries;
- the reading of a prefix: between all queries with that prefix;
- the reading of a query: between clips with the same concept words, if it depends on nothing else of a clip
  (retrieval);
- the product of W_p and a clip's sketch: between all queries.

Queries and clips are processed in blocks to bound memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ctsan.model.choice_model import ChoiceModel
from ctsan.model.clip_encoder import ClipEncoding
from ctsan.model.lstm import LayerNormLSTMLayer, State
from ctsan.model.prefix_tree import PrefixTree, prefix_tree, read_tree
from ctsan.model.retrieval_model import RetrievalModel
from ctsan.text.vocabulary import PAD

_QUERIES_AT_ONCE = 4096
_CLIPS_AT_ONCE = 1024
_NUMBERS_AT_ONCE = 2**23  # elements in the hidden states of a level, over all clips of a block


@torch.inference_mode()
def score_pairs(model: RetrievalModel | ChoiceModel, queries: Tensor, encoding: ClipEncoding) -> Tensor:
    """Scores of all queries (Q, T), padded, with all encoded clips, (Q, clips), without dropout."""
    clips = torch.arange(len(encoding.concepts), device=encoding.concepts.device)
    if not (len(queries) and len(clips)):
        return encoding.concepts.new_zeros(len(queries), len(clips))
    distinct, which = torch.unique(queries.to(clips.device), dim=0, return_inverse=True)  # sorted
    trees = [prefix_tree(some, some != PAD) for some in torch.split(distinct, _QUERIES_AT_ONCE)]
    scores = [
        torch.cat([_score(model, tree, encoding.without_detection.of(some)) for tree in trees])
        for some in torch.split(clips, _CLIPS_AT_ONCE)
    ]
    return torch.cat(scores, dim=1)[which]


def _score(model: RetrievalModel | ChoiceModel, tree: PrefixTree, encoding: ClipEncoding) -> Tensor:
    """Scores of a tree's queries with clips, (Q, clips)."""
    vectors, sets, set_of_clip = _concept_sets(model, encoding)
    if isinstance(model, ChoiceModel):
        readings = _readings(model, tree, vectors, sets[set_of_clip], encoding.state)
        return torch.cat([model.score(last) for last in readings], dim=1)
    scores, done = vectors.new_empty(tree.num_sentences, len(set_of_clip)), 0
    for last in _readings(model, tree, vectors, sets, model.lstm.initial(len(sets), vectors)):
        clips = ((set_of_clip >= done) & (set_of_clip < done + last.shape[1])).nonzero()[:, 0]
        scores[:, clips] = model.score_all(encoding.state.top[clips], last, set_of_clip[clips] - done)
        done += last.shape[1]
    return scores


def _concept_sets(
    model: RetrievalModel | ChoiceModel, encoding: ClipEncoding
) -> tuple[Tensor, Tensor, Tensor]:
    """Distinct concept words (V, E), distinct sets of them (S, K), and the set of each clip."""
    words, concepts = encoding.concept_words, encoding.concepts
    if model.word_input.attention is None:
        words, concepts = words[:, :0], concepts[:, :0]
    if model.clip_encoder.confidence_weighted:  # embeddings then differ from clip to clip
        words = torch.arange(words.numel(), device=words.device).view_as(words)
    words = words.masked_fill(~(concepts != 0).any(dim=2), -1)  # empty slots
    different, places = torch.unique(words, return_inverse=True)
    vectors = concepts.new_empty(len(different), concepts.shape[2])
    vectors[places] = concepts
    ordered = places.sort(dim=1).values
    if ordered.shape[1] == 0:  # `unique` rejects empty rows
        return vectors, ordered[:1], ordered.new_zeros(len(ordered))
    sets, set_of_clip = torch.unique(ordered, dim=0, return_inverse=True)
    return vectors, sets, set_of_clip


def _readings(
    model: RetrievalModel | ChoiceModel, tree: PrefixTree, concepts: Tensor, sets: Tensor, start: State
) -> Iterator[Tensor]:
    """Yield h_T of all queries, (Q, C, D), for C of the sets of concept words (S, K) at a time."""
    layer = model.lstm.layers[0]
    assert isinstance(layer, LayerNormLSTMLayer)
    words = model.clip_encoder.embedding(tree.words)
    table = model.word_input.table(words, concepts, then=layer.from_input)
    rows = max(tree.width, len(tree.words), tree.num_sentences)
    at_once = max(1, _NUMBERS_AT_ONCE // (rows * layer.hidden_dim))
    for first in range(0, len(sets), at_once):
        here = slice(first, first + at_once)
        projected = layer.norm_input(table.beside(sets[here]))  # (W, C, 4 D)
        yield read_tree(model.lstm, projected, tree, State(start.hidden[:, here], start.cell[:, here]))
