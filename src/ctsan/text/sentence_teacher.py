"""A pretrained sentence transformer (Reimers & Gurevych, 2019) as the teacher of word vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.nn import functional as F

from ctsan.errors import UsageError
from ctsan.io.extras import extra

_BATCH = 128  # sentences
_MAX_TOKENS = 48  # per sentence; captions are short


def _has_bfloat16() -> bool:
    """Whether the CPU multiplies in bfloat16: twice as fast, with a cosine of 0.9999 to float32."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return False
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # torch has no public name


class SentenceTeacher:
    """A local sentence transformer with mean pooling, such as all-MiniLM-L6-v2.

    It downloads nothing and runs no code from the folder.

    Raises:
        UsageError: `transformers` is not installed, or the folder does not contain such a model.
    """

    def __init__(self, folder: Path) -> None:
        with extra("teacher", "A sentence transformer"):
            from transformers import AutoModel, AutoTokenizer
        if not (folder / "config.json").is_file():
            raise UsageError(
                f"{folder}: there is no config.json. Name the folder of a sentence "
                "transformer; docs/words.md says where to get one."
            )
        try:
            options = {"local_files_only": True, "trust_remote_code": False}
            self._tokenizer = AutoTokenizer.from_pretrained(folder, **options)
            self._model = AutoModel.from_pretrained(folder, use_safetensors=True, **options)
        except (OSError, ValueError, SafetensorError) as error:
            why = (str(error) or type(error).__name__).splitlines()[0]
            raise UsageError(
                f"{folder}: the sentence transformer cannot be read ({why}). It needs config.json, "
                "tokenizer.json and model.safetensors."
            ) from None
        self._model.eval()

    @property
    def dim(self) -> int:
        return int(self._model.config.hidden_size)

    @torch.inference_mode()
    def __call__(
        self, sentences: Sequence[str], *, progress: Callable[[int, int], object] | None = None
    ) -> Tensor:
        """Sentence vectors (n, D) of unit length.

        Args:
            progress: called with the number of sentences done and their total.
        """
        shortest_first = sorted(range(len(sentences)), key=lambda index: len(sentences[index]))
        vectors = torch.empty(len(sentences), self.dim)
        for start in range(0, len(sentences), _BATCH):
            indices = shortest_first[start : start + _BATCH]
            tokens = self._tokenizer(
                [sentences[index] for index in indices],
                padding=True,
                truncation=True,
                max_length=_MAX_TOKENS,
                return_tensors="pt",
            )
            is_real = tokens["attention_mask"][..., None]
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=_has_bfloat16()):
                states = self._model(**tokens).last_hidden_state.float() * is_real
            vectors[indices] = F.normalize(states.sum(dim=1) / is_real.sum(dim=1), dim=1)
            if progress:
                progress(start + len(indices), len(sentences))
        return vectors
