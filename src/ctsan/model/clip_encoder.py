"""The clip encoder that all models share: the video encoder's state s_N, and the concept words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ctsan.model.concept_detector import (
    ConceptSource,
    Detection,
    LearntConceptSource,
    RegionReducer,
)
from ctsan.model.lstm import State
from ctsan.model.semantic_attention import InputSemanticAttention, OutputSemanticAttention
from ctsan.model.video_encoder import VideoEncoder, mean_over_frames

_FORMS = 4  # the top 4 K candidates are searched for K distinct lemmas


class ClipEncoding(NamedTuple):
    """Encoded clips, as the language models read them."""

    state: State  # s_N
    concepts: Tensor  # (B, K, E), embeddings a_i, zeros where there is no word; K is 0 without a detector
    concept_words: Tensor  # (B, K), candidate indices in order of rank; arbitrary where there is no word
    confidences: Tensor  # (B, K), 0 where there is no word, because a clip may have fewer than K
    detection: Detection | None

    @property
    def without_detection(self) -> ClipEncoding:
        """The encoding without `detection`, which is large and not used by the language models."""
        return self._replace(detection=None)

    def of(self, clips: Tensor) -> ClipEncoding:
        """Select rows by clip index, e.g. one row per sentence."""
        state = State(self.state.hidden[:, clips], self.state.cell[:, clips])
        return self._replace(
            state=state,
            concepts=self.concepts[clips],
            concept_words=self.concept_words[clips],
            confidences=self.confidences[clips],
            detection=None if self.detection is None else self.detection.of(clips),
        )

    def to(self, device: torch.device) -> ClipEncoding:
        return ClipEncoding(
            State(self.state.hidden.to(device), self.state.cell.to(device)),
            self.concepts.to(device),
            self.concept_words.to(device),
            self.confidences.to(device),
            None if self.detection is None else self.detection.to(device),
        )


class BaseClipEncoder(nn.Module):
    """Common attributes of clip encoders: channel statistics, and the word embedding of the language model.

    Attributes:
        detector: the source of concept words, or None.
    """

    embedding: nn.Embedding
    candidate_words: Tensor
    channel_means: Tensor
    channel_scales: Tensor
    detector: ConceptSource | None
    num_concepts: int

    def _add_inputs(self, *, channels: int, embedding: Tensor, candidate_words: Tensor) -> None:
        """Add the word embedding and the channel statistics, as described for `ClipEncoder`.

        Not part of `__init__`: the embedding draws random numbers, so that its place among the other layers
        decides about the weights that a seed gives.
        """
        self.embedding = nn.Embedding(len(embedding), embedding.shape[1])
        with torch.no_grad():
            self.embedding.weight.copy_(embedding)
        self.register_buffer("candidate_words", candidate_words)
        self.register_buffer("channel_means", torch.zeros(channels))  # see `init_from`
        self.register_buffer("channel_scales", torch.ones(channels))


class ClipEncoder(BaseClipEncoder):
    """Reduce feature maps to regions, then run the video encoder and the concept word detector over them.

    Args:
        embedding: (words, E), initial word vectors. The language model shares the embedding.
        candidate_words: (V,), vocabulary index of each concept candidate.
        detector: the source of concept words; None for the paper's Base-SAN.
        channel_dropout: dropout rate of feature channels. A channel is dropped in all frames and cells of a
            clip, because otherwise its value remains visible in the others. The paper has none.
        video_encoder: replaces the paper's video encoder.
        probe: a module from mean features (B, C) to scores (B, V), which are added to those of a learnt
            detector. Differs from the paper, which has none.
        confidence_weighted: scale concept embeddings by their confidence, so that the language loss trains
            the detector. In the paper they are looked up, so no gradient reaches it.
        prior_weight: w in p - w q, by which concept words are ranked. q is the share of training clips with
            the word. 0 ranks by confidence p, as in the paper.
        lemmas: (V,), lemma id of each candidate. If w > 0, each lemma is selected at most once.
        memory: for the paper's video encoder: see `LayerNormLSTM`.
    """

    frequencies: Tensor  # (V,), q
    lemmas: Tensor

    def __init__(
        self,
        *,
        channels: int,
        embedding: Tensor,
        candidate_words: Tensor,
        hidden_dim: int,
        detector: ConceptSource | None,
        num_concepts: int,
        probe: nn.Module | None = None,
        confidence_weighted: bool = False,
        prior_weight: float = 0.0,
        lemmas: Tensor | None = None,
        region_kernel: int = 3,
        num_layers: int = 2,
        dropout: float = 0.2,
        channel_dropout: float = 0.0,
        memory: int = 4,
        video_encoder: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.channel_dropout = channel_dropout
        self.num_concepts = num_concepts
        self.confidence_weighted = confidence_weighted
        self.prior_weight = prior_weight
        self.reduce = RegionReducer(channels=channels, hidden_dim=hidden_dim, kernel=region_kernel)
        self.detector = detector
        self.probe = probe
        if probe is not None and isinstance(detector, LearntConceptSource):
            nn.init.zeros_(detector.name.weight)
        self.encode_video = video_encoder or VideoEncoder(
            hidden_dim=hidden_dim, num_layers=num_layers, dropout=dropout, memory=memory
        )
        self._add_inputs(channels=channels, embedding=embedding, candidate_words=candidate_words)
        if prior_weight:
            lemmas = torch.arange(len(candidate_words)) if lemmas is None else lemmas
            self.register_buffer("frequencies", torch.zeros(len(lemmas)))  # see `init_from`
            self.register_buffer("lemmas", lemmas, persistent=False)

    @torch.no_grad()
    def init_from(
        self,
        *,
        channels: tuple[Tensor, Tensor] | None = None,
        directions: Tensor | None = None,
        frequencies: Tensor | None = None,
        prior: Tensor | None = None,
    ) -> None:
        """Initialise from statistics of the training clips, which the paper does not do.

        Args:
            channels: channel means and scales, both (C,), to standardise the maps. The component common to
                all clips is far larger than the differences between them, and would dominate layer
                normalisation.
            directions: (n, C), orthonormal principal directions of the clips. The regions are initialised as
                projections onto them, because a small corpus is not enough to learn which channels matter.
            frequencies: (V,), the share of clips that use each candidate. They set the detector's bias, so
                that an untrained detector predicts the common words.
            prior: (V,), the same shares, used as q in p - w q.
        """
        if channels is not None:
            self.channel_means.copy_(channels[0])
            self.channel_scales.copy_(channels[1])
        if directions is not None:
            self.reduce.init_from(directions)
        if self.probe is not None:  # its bias holds the frequencies, and the traces initially add 0
            frequencies = None
        if frequencies is not None and isinstance(self.detector, LearntConceptSource):
            self.detector.name.bias.copy_(frequencies.clamp(1e-3, 1 - 1e-3).logit())
        if prior is not None and self.prior_weight:
            self.frequencies.copy_(prior)

    def means(self, maps: Tensor, frame_is_real: Tensor) -> Tensor:
        """The probe's input: standardised mean features (B, C) of maps (B, N, h, w, C)."""
        means = mean_over_frames(maps.mean(dim=(2, 3)), frame_is_real)
        return (means - self.channel_means) / self.channel_scales

    def regions(self, maps: Tensor) -> Tensor:
        """Maps (B, N, h, w, C) to regions (B, N, D, h, w)."""
        scaled = (maps - self.channel_means) / self.channel_scales
        if self.training and self.channel_dropout:
            one = scaled.new_ones(len(maps), 1, 1, 1, maps.shape[-1])
            scaled = scaled * F.dropout(one, self.channel_dropout)
        regions: Tensor = self.reduce(scaled)
        return regions

    def forward(
        self, maps: Tensor, frame_is_real: Tensor, concept_scores: Tensor | None = None
    ) -> ClipEncoding:
        """Encode maps (B, N, h, w, C).

        Args:
            concept_scores: (B, V), out-of-fold logits. They replace the detector's scores when selecting
                concept words, and the probe's scores. None or (B, 0) for none.
        """
        regions = self.regions(maps)
        state = self.encode_video(regions, frame_is_real)
        if self.detector is None:
            nothing = maps.new_zeros(len(maps), 0)
            concepts = maps.new_zeros(len(maps), 0, self.embedding.embedding_dim)
            return ClipEncoding(state, concepts, nothing.long(), nothing, None)
        seen = regions if isinstance(self.detector, LearntConceptSource) else maps
        detection: Detection = self.detector(seen, frame_is_real)
        if concept_scores is not None and not concept_scores.shape[1]:
            concept_scores = None
        if self.probe is not None:
            probed = concept_scores
            if probed is None:
                probed = self.probe(self.means(maps, frame_is_real))
            # The traces learn a residual of the probe's scores.
            detection = detection._replace(scores=probed + detection.scores, probed=probed)
        if concept_scores is None:
            concept_scores = detection.scores
        words, confidences = self.top(concept_scores)
        if self.confidence_weighted:  # the detector's own confidences, so that it gets gradients
            confidences = detection.confidences.gather(1, words)
        return ClipEncoding(state, self.embed_concepts(words, confidences), words, confidences, detection)

    @property
    def uses_prior(self) -> bool:
        """Whether concept words are ranked by p - w q."""
        return bool(self.prior_weight) and (self.detector is None or self.detector.has_confidences)

    def ranking(self, confidences: Tensor) -> Tensor:
        """Ranking scores p - w q from confidences p (…, V); candidates with p = 0 rank last."""
        if not self.uses_prior:
            return confidences
        return (confidences - self.prior_weight * self.frequencies).masked_fill(
            confidences == 0, -self.prior_weight - 1
        )

    def top(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The top K concept words of scores (B, V), in order of rank, and their confidences, both (B, K)."""
        if not self.uses_prior:
            best = scores.topk(self.num_concepts, dim=1)
            return best.indices, best.values.sigmoid()
        confidences = scores.sigmoid()
        num_looked_at = min(scores.shape[1], _FORMS * self.num_concepts)
        words = self.ranking(confidences).topk(num_looked_at, dim=1).indices
        lemmas = self.lemmas[words]
        is_higher = torch.ones(num_looked_at, num_looked_at, device=words.device).tril(-1) > 0
        is_form = ((lemmas[:, :, None] == lemmas[:, None]) & is_higher).any(dim=2)  # lemma already ranked
        place = torch.arange(num_looked_at, device=words.device) + num_looked_at * is_form  # repeats last
        words = words.gather(1, place.topk(self.num_concepts, dim=1, largest=False).indices)
        return words, confidences.gather(1, words)

    def embed_concepts(self, words: Tensor, confidences: Tensor) -> Tensor:
        """Embeddings a_i of candidates (B, K) with confidences (B, K): (B, K, E)."""
        concepts: Tensor = self.embedding(self.candidate_words[words])
        if self.confidence_weighted:
            concepts = concepts * confidences[..., None]
        return concepts.masked_fill((confidences == 0)[..., None], 0.0)

    def replace_concepts(self, encoding: ClipEncoding, words: Tensor, confidences: Tensor) -> ClipEncoding:
        """Replace the concept words by candidates (B, K). A confidence of 0 marks an empty slot."""
        return encoding._replace(
            concepts=self.embed_concepts(words, confidences), concept_words=words, confidences=confidences
        )


def concatenate(encodings: Sequence[ClipEncoding]) -> ClipEncoding:
    """Encodings of several batches as one, without their detections."""
    return ClipEncoding(
        state=State(
            torch.cat([encoding.state.hidden for encoding in encodings], dim=1),
            torch.cat([encoding.state.cell for encoding in encodings], dim=1),
        ),
        concepts=torch.cat([encoding.concepts for encoding in encodings]),
        concept_words=torch.cat([encoding.concept_words for encoding in encodings]),
        confidences=torch.cat([encoding.confidences for encoding in encodings]),
        detection=None,
    )


def reads_concepts(model: nn.Module) -> bool:
    """Whether a model has concept words and an attention that reads them."""
    encoder = getattr(model, "clip_encoder", None)
    attentions = (InputSemanticAttention, OutputSemanticAttention)
    return (
        isinstance(encoder, ClipEncoder)
        and encoder.detector is not None
        and any(isinstance(module, attentions) for module in model.modules())
    )
