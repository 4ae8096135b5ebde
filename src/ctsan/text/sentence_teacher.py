"""A sentence transformer of others' (Reimers & Gurevych, 2019), which knows what sentences mean alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.nn import functional as F

from ctsan.errors import UsageError

_AT_ONCE = 128  # sentences
_MOST_TOKENS = 48  # of a sentence; captions are short


def _has_bfloat16() -> bool:
    """Whether this processor multiplies in bfloat16: twice as fast, and vectors keep a cosine of 0.9999."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return False
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # torch has no public name


class SentenceTeacher:
    """Reads a folder of a model whose sentence vectors are its tokens' means, such as all-MiniLM-L6-v2.

    Nothing is fetched, and nothing that is read can run code.

    Raises:
        UsageError: `transformers` is not installed, or the folder holds no such model.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from transformers import AutoModel, AutoTokenizer
        except ImportError:
            raise UsageError(
                "Sentence transformers are read with 'transformers', which is not installed. Install it: pip "
                "install 'ctsan[teacher]'"
            ) from None
        if not (folder / "config.json").is_file():
            raise UsageError(
                f"{folder}: there is no config.json. Name the folder of a sentence "
                "transformer; docs/words.md says where to get one."
            )
        try:
            own = {"local_files_only": True, "trust_remote_code": False}
            self._tokens = AutoTokenizer.from_pretrained(folder, **own)
            self._model = AutoModel.from_pretrained(folder, use_safetensors=True, **own)
        except (OSError, ValueError, SafetensorError) as error:
            why = (str(error) or type(error).__name__).splitlines()[0]
            raise UsageError(
                f"{folder}: this is no sentence transformer that can be read ({why}). It needs "
                "config.json, tokenizer.json and model.safetensors."
            ) from None
        self._model.eval()

    @property
    def dim(self) -> int:
        return int(self._model.config.hidden_size)

    @torch.inference_mode()
    def __call__(
        self, sentences: Sequence[str], *, progress: Callable[[int, int], object] | None = None
    ) -> Tensor:
        """Vectors (n, D) of length one.

        Args:
            progress: is called with how many sentences were read, and how many there are.
        """
        shortest_first = sorted(range(len(sentences)), key=lambda place: len(sentences[place]))
        vectors = torch.empty(len(sentences), self.dim)
        for start in range(0, len(sentences), _AT_ONCE):
            places = shortest_first[start : start + _AT_ONCE]
            read = self._tokens(
                [sentences[place] for place in places],
                padding=True,
                truncation=True,
                max_length=_MOST_TOKENS,
                return_tensors="pt",
            )
            is_real = read["attention_mask"][..., None]
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=_has_bfloat16()):
                states = self._model(**read).last_hidden_state.float() * is_real
            vectors[places] = F.normalize(states.sum(dim=1) / is_real.sum(dim=1), dim=1)
            if progress:
                progress(start + len(places), len(sentences))
        return vectors
