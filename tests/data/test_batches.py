from __future__ import annotations

import numpy as np

from ctsan.data.batches import encode_captions, pad_maps, pad_words, references
from ctsan.text.vocabulary import BOS, EOS, SPECIALS, UNK, Vocabulary
from ctsan.video.clip_maps import subsample_maps


def test_shorter_clips_are_padded_and_say_so() -> None:
    clips = [np.full((frames, 2, 2, 3), frames, dtype=np.float16) for frames in (3, 1)]
    maps, is_real = pad_maps(clips)
    assert maps.shape == (2, 3, 2, 2, 3)
    assert is_real.tolist() == [[True, True, True], [True, False, False]]
    assert (maps[1, 0] == 1).all()
    assert (maps[1, 1:] == 0).all()


def test_long_clips_are_thinned_evenly() -> None:
    maps = np.arange(40, dtype=np.float16)[:, None, None, None]
    assert subsample_maps(maps, 10).ravel().tolist() == [0, 4, 8, 12, 16, 20, 24, 28, 32, 36]
    assert subsample_maps(maps, 40) is maps


def test_captions_become_numbers_between_begin_and_end() -> None:
    vocabulary = Vocabulary((*SPECIALS, "a", "dog"), (*[0] * len(SPECIALS), 9, 8))
    dog = vocabulary.encode(["dog"])[0]
    sentences = encode_captions(["A dog barks", "dog dog dog dog"], vocabulary, max_words=3)
    assert sentences == [[BOS, dog - 1, dog, UNK, EOS], [BOS, dog, dog, dog, EOS]]
    assert pad_words([[1, 2, 3], [4]]).tolist() == [[1, 2, 3], [4, 0, 0]]


def test_references_mark_the_words_of_each_clip() -> None:
    assert references([[0, 2], []], 3).tolist() == [[1, 0, 1], [0, 0, 0]]
