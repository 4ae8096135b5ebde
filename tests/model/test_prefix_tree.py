"""The tree of beginnings, and an LSTM that reads along it."""

from __future__ import annotations

import torch

from ctsan.model.lstm import LayerNormLSTM, LayerNormLSTMLayer, State
from ctsan.model.prefix_tree import prefix_tree, read_tree
from worked_out import D, E, draw, stirred

#          beginnings: 2, 21 | 21, 213, 2134 | 21, 213, 2135 | 6, 61 | 6, 62
SENTENCES = torch.tensor([[2, 1, 0, 0], [2, 1, 3, 4], [2, 1, 3, 5], [6, 1, 0, 0], [6, 2, 0, 0]])


def test_every_beginning_is_there_once_below_its_parent() -> None:
    tree = prefix_tree(SENTENCES, SENTENCES != 0)
    assert tree.num_sentences == 5
    words = [tree.words[level.words].tolist() for level in tree.levels]
    assert words == [[2, 6], [1, 1, 2], [3], [4, 5]]
    assert [level.parents.tolist() for level in tree.levels] == [[0, 0], [0, 1, 1], [0], [0, 0]]
    ends = [dict(zip(level.ended.tolist(), level.ends.tolist(), strict=True)) for level in tree.levels]
    assert ends == [{}, {0: 0, 3: 1, 4: 2}, {}, {1: 0, 2: 1}]
    assert tree.width == 3


def test_different_words_after_which_the_same_follows_are_different_beginnings() -> None:
    sentences = torch.tensor([[1, 3, 3], [2, 3, 3]])
    tree = prefix_tree(sentences, sentences != 0)
    assert [len(level.words) for level in tree.levels] == [2, 2, 2]


def test_padding_beyond_the_longest_sentence_adds_no_level() -> None:
    assert len(prefix_tree(SENTENCES[:1], SENTENCES[:1] != 0).levels) == 2


def test_reading_the_tree_is_reading_every_sentence_from_its_clips_state() -> None:
    torch.manual_seed(0)
    lstm = stirred(LayerNormLSTM(input_dim=E, hidden_dim=D, num_layers=3))
    tree = prefix_tree(SENTENCES, SENTENCES != 0)
    clips = 2
    inputs = draw(clips, 7, E)  # of every number that a word can have
    start = State(draw(3, clips, D, seed=1), draw(3, clips, D, seed=2))
    first = lstm.layers[0]
    assert isinstance(first, LayerNormLSTMLayer)
    with torch.no_grad():
        last = read_tree(lstm, first.project(inputs[:, tree.words].transpose(0, 1)), tree, start)
        assert last.shape == (5, clips, D)
        for clip in range(clips):
            from_clip = State(start.hidden[:, [clip] * 5], start.cell[:, [clip] * 5])
            _, wanted = lstm(inputs[clip, SENTENCES], from_clip, SENTENCES != 0)
            torch.testing.assert_close(last[:, clip], wanted.top, rtol=0, atol=1e-12)


def test_a_sentence_without_words_stays_where_it_starts() -> None:
    lstm = stirred(LayerNormLSTM(input_dim=E, hidden_dim=D))
    sentences = torch.tensor([[0, 0], [3, 0]])
    tree = prefix_tree(sentences, sentences != 0)
    start = State(draw(2, 1, D, seed=1), draw(2, 1, D, seed=2))
    with torch.no_grad():
        last = read_tree(lstm, draw(len(tree.words), 1, 4 * D), tree, start)
    torch.testing.assert_close(last[0, 0], start.top[0], rtol=0, atol=0)
    assert not torch.allclose(last[1, 0], start.top[0])
