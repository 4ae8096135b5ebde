"""Scores of all queries with all clips: the same as pair by pair, in a fraction of the time.

The concept words of a clip are mixed into every word of a query, so a query is read anew beside every clip.
What is shared: the two sides of the input attention, up to the first gates, by word and by concept word; a
word's input by all its places in the queries; the reading of a beginning by all queries that begin so; a
whole reading by all clips with the same concept words, where nothing else of a clip is read (retrieval); and
the product of W_p and a clip's sketch by all queries. Blocks of queries and clips bound the memory.
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
_NUMBERS_AT_ONCE = 2**23  # of the hidden states of a level, beside all clips that are read together


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
    """The scores of a tree's queries with clips, (Q, clips)."""
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
    """The different concept words (V, E), the different sets of them (S, K), and which set each clip has."""
    words, concepts = encoding.concept_words, encoding.concepts
    if model.word_input.attention is None:
        words, concepts = words[:, :0], concepts[:, :0]
    if model.clip_encoder.confidence_weighted:  # by a confidence that no two clips have in common
        words = torch.arange(words.numel(), device=words.device).view_as(words)
    words = words.masked_fill(~(concepts != 0).any(dim=2), -1)  # where a clip has fewer words
    different, places = torch.unique(words, return_inverse=True)
    vectors = concepts.new_empty(len(different), concepts.shape[2])
    vectors[places] = concepts
    ordered = places.sort(dim=1).values
    if ordered.shape[1] == 0:  # `unique` refuses rows of nothing
        return vectors, ordered[:1], ordered.new_zeros(len(ordered))
    sets, set_of_clip = torch.unique(ordered, dim=0, return_inverse=True)
    return vectors, sets, set_of_clip


def _readings(
    model: RetrievalModel | ChoiceModel, tree: PrefixTree, concepts: Tensor, sets: Tensor, start: State
) -> Iterator[Tensor]:
    """h_T of all queries, (Q, C, D), beside one set of concept words (S, K) after the other, C at a time."""
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
