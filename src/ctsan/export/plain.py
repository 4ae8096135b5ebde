"""The description model as single steps of standard operations, for the ONNX exporter.

The model itself runs whole sequences in custom autograd functions, which cannot be exported.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ctsan.model.caption_decoder import CaptionDecoder
from ctsan.model.clip_encoder import ClipEncoder
from ctsan.model.concept_detector import ConceptDetector
from ctsan.model.description_model import DescriptionModel
from ctsan.model.lstm import LayerNormLSTMLayer, State
from ctsan.model.video_encoder import VideoEncoder


class FrameStep(nn.Module):
    """One frame of `ClipEncoder`: the next states of video encoder and traces, and the concepts so far."""

    def __init__(self, encoder: ClipEncoder) -> None:
        super().__init__()
        assert isinstance(encoder.encode_video, VideoEncoder)
        assert isinstance(encoder.detector, ConceptDetector)
        self.encoder, self.detector, self.video = encoder, encoder.detector, encoder.encode_video.lstm

    def forward(
        self,
        maps: Tensor,
        is_first: Tensor,
        hidden: Tensor,
        cell: Tensor,
        trace_hidden: Tensor,
        trace_cell: Tensor,
        total: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Advance the video encoder and the traces by one frame.

        Args:
            maps: (h, w, C).
            is_first: (), whether this is the first frame; its states are zero.
            hidden, cell: (layers, 1, D), of the video encoder.
            trace_hidden, trace_cell: (layers, L, D).
            total: (1, C + 1), sum of the mean features of the frames, then their number; only with a probe.

        Returns:
            The next states; embeddings (1, K, E), indices (1, K) and confidences (1, K) of the concept words.
        """
        maps = maps.half().float()[None, None]  # the precision of the stored features in training
        frame = self.encoder.regions(maps)[:, 0]  # (1, D, h, w)
        state = self.video.step(frame.mean(dim=(2, 3)), State(hidden, cell))
        traces = self._trace(frame, is_first, State(trace_hidden, trace_cell))
        scores = self.detector.name_words(traces.top[None])
        totals: tuple[Tensor, ...] = ()
        if self.encoder.probe is not None and total is not None:
            total = total + F.pad(maps.mean(dim=(1, 2, 3)), (0, 1), value=1.0)
            means = (total[:, :-1] / total[:, -1:] - self.encoder.channel_means) / self.encoder.channel_scales
            scores, totals = scores + self.encoder.probe(means), (total,)
        words, confidences = self.encoder.top(scores)
        concepts = self.encoder.embedding(self.encoder.candidate_words[words])
        if self.encoder.confidence_weighted:
            concepts = concepts * confidences[..., None]
        return *state, *traces, *totals, concepts, words, confidences

    def _trace(self, frame: Tensor, is_first: Tensor, state: State) -> State:
        """Equations 1 to 4 for one frame; see `ConceptDetector.forward`."""
        first_layer = self.detector.trace.layers[0]
        assert isinstance(first_layer, LayerNormLSTMLayer)
        weights = self.detector.attend.forward_plainly(frame, state.top[None]).flatten(2)  # (1, L, P)
        weights = torch.where(is_first, torch.eye(self.detector.num_traces), weights)
        context = first_layer.project(weights @ frame.flatten(2).mT)  # (1, L, 4 D)
        return self.detector.trace.step(context[0], state, is_projected=True)


class WordStep(nn.Module):
    """One step of `CaptionDecoder`, for a batch of hypotheses."""

    def __init__(self, model: DescriptionModel) -> None:
        super().__init__()
        assert isinstance(model.decode, CaptionDecoder)
        self.embedding, self.decode = model.clip_encoder.embedding, model.decode

    def forward(
        self, last: Tensor, concepts: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Advance the caption decoder by one word.

        Args:
            last: (B,), the previous words.
            concepts: (B, K, E).
            hidden, cell: (layers, B, D).

        Returns:
            Log-probabilities of the next words (B, V), and the next state.
        """
        x, _ = self.decode.word_input(self.embedding(last)[:, None], concepts)
        state = self.decode.lstm.step(x[:, 0], State(hidden, cell))
        output = state.top[:, None]
        if self.decode.output_attention is not None:
            output, _ = self.decode.output_attention(output, concepts)
        return self.decode.say(output)[:, 0].log_softmax(dim=-1), state.hidden, state.cell
