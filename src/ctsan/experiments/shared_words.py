"""The words of all runs in a folder: prepared once, shared by every system and seed."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ctsan.config import Settings
from ctsan.data.corpus import Corpus
from ctsan.errors import RunError, UsageError
from ctsan.io.atomic import write_json
from ctsan.io.reading import DamagedFileError, read_json_object
from ctsan.text.words import Words, prepare_words

_FILE, _FOLDER = "words.json", "words"


def words_for(corpus: Corpus, out: Path, settings: Settings) -> Words:
    """Prepare or load the words of the training captions, stored next to the runs.

    Raises:
        RunError: what is stored about them is damaged.
        UsageError: the folder's runs were started with other captions or sizes.
    """
    captions = list(corpus.captions("train"))
    made_of = {
        "captions": hashlib.sha256("\n".join(captions).encode(errors="surrogatepass")).hexdigest(),
        "num_candidates": settings.detector.num_candidates,
        "embedding_dim": settings.model.embedding_dim,
    }
    file = out / _FILE
    if file.exists():
        try:
            stored = read_json_object(file)
        except DamagedFileError as error:
            raise RunError(
                f"{file}: it is damaged ({error}). Put it back from a copy, or name another folder: --out "
                "FOLDER"
            ) from None
        if stored != made_of:
            raise UsageError(
                f"{out}: its runs were begun with other training captions or other sizes of words. Name "
                "another folder: --out FOLDER"
            )
        return Words.load(out / _FOLDER)
    words = prepare_words(
        captions,
        num_concepts=settings.detector.num_candidates,
        embedding_dim=settings.model.embedding_dim,
        seed=0,
    )
    words.save(out / _FOLDER)
    write_json(file, made_of)  # written last: marks the words as complete
    return words
