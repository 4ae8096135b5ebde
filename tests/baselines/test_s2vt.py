"""S2VT against plain NumPy."""

from __future__ import annotations

import numpy as np
import torch

from baselines.decoders import LENGTHS, READ, B, C, D, E, H, N, T, reduced_frames, s2vt
from worked_out import draw, lstm, numbers, stirred


def test_s2vt_is_two_lstms_that_watch_and_then_speak() -> None:
    """Venugopalan et al., figure 2: zeros stand for words while frames come in, then for frames."""
    model = stirred(s2vt())
    maps = draw(B, N, H, H, C)
    encoding = model.clip_encoder(maps, torch.arange(N) < torch.tensor(LENGTHS)[:, None])
    scores = model(READ, encoding).scores.detach().numpy()
    w, nothing = numbers(model), np.zeros((1, D))
    frames, no_frame, no_word = reduced_frames(model, maps), np.zeros(D), np.zeros(E)
    for b, length in enumerate(LENGTHS):
        words = w["clip_encoder.embedding.weight"][READ[b].tolist()]
        first = lstm(w, "decode.stack.watch", [*frames[b, :length], *[no_frame] * T], nothing, nothing)
        beside = [*[no_word] * length, *words]
        joined = [np.concatenate(pair) for pair in zip(first, beside, strict=True)]
        second = lstm(w, "decode.stack.speak", joined, nothing, nothing)[length:]
        wanted = [w["decode.say.weight"] @ state + w["decode.say.bias"] for state in second]
        np.testing.assert_allclose(scores[b], wanted, atol=1e-9)
