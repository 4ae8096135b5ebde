"""`ctsan vectors`: distil word vectors from a sentence transformer."""

from __future__ import annotations

from pathlib import Path

import click

from ctsan.cli.output import print_json, print_line, print_table
from ctsan.io.messages import listed
from ctsan.io.progress import progress_bar, shown_on


@click.command("vectors")
@click.argument("corpora", metavar="CORPUS...", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "--external",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Clips or pictures that others captioned, as 'ctsan train' takes them. May be repeated.",
)
@click.option(
    "--teacher",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder of a sentence transformer, such as all-MiniLM-L6-v2.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="File for the vectors.")
@click.option(
    "--text",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Other sentences, one a line, for words that captions do not hold. May be repeated.",
)
@click.option(
    "--dim", type=click.IntRange(min=2), default=128, show_default=True, help="Numbers of a vector."
)
@click.option(
    "--words",
    type=click.IntRange(min=1),
    default=30_000,
    show_default=True,
    help="At most so many: the captions' own, and then the most frequent others.",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    corpora: tuple[Path, ...],
    external: tuple[Path, ...],
    teacher: Path,
    out: Path,
    text: tuple[Path, ...],
    dim: int,
    words: int,
    seed: int,
    as_json: bool,
) -> None:
    """Distil word vectors for the training captions of CORPUS from a sentence transformer.

    The sum of a sentence's word vectors is trained to point in the direction of the transformer's sentence
    vector. Use them with 'ctsan train embed --vectors': search then knows words that are in no caption.

    \b
    Examples:
      ctsan vectors my-clips/ --teacher all-MiniLM-L6-v2/ --text wordnet.txt --out vectors.txt
      ctsan vectors my-clips/ --external captioned-pictures/ --teacher all-MiniLM-L6-v2/ --out vectors.txt
      ctsan train embed --corpus my-clips/ --vectors vectors.txt --set model.embedding_dim=128 --out runs/it
    """
    from ctsan.data.reading import read_corpora
    from ctsan.errors import UsageError
    from ctsan.text.distilled_vectors import distil, save_vectors
    from ctsan.text.sentence_teacher import SentenceTeacher

    if out.suffix == ".json":
        raise UsageError(f"{out}: vectors are written as text. Name a text file: {out.with_suffix('.txt')}")
    captions = list(read_corpora(corpora, external=external).captions("train"))
    if not captions:
        raise UsageError(
            f"{listed(corpora)}: there are no training captions. Write some: 'ctsan corpus check' shows what "
            "is there."
        )
    others = [sentence for file in text for sentence in _lines(file)]
    model = SentenceTeacher(teacher)
    if dim > model.dim:
        raise UsageError(
            f"{teacher}: its vectors have {model.dim} numbers. Ask for no more: --dim {model.dim}"
        )
    with progress_bar(len(captions) + len(others), what="vectors", unit="") as bar:
        vectors = distil(captions, others, model, dim=dim, num_words=words, seed=seed, progress=shown_on(bar))
    save_vectors(out, vectors)
    if as_json:
        summary = {
            "vectors": str(out),
            "words": len(vectors),
            "captions": len(captions),
            "others": len(others),
        }
        print_json(summary)
        return
    print_table(
        [
            ("training captions", len(captions)),
            ("other sentences", len(others)),
            ("words", len(vectors)),
            ("file", str(out)),
        ]
    )
    paths = [*(f"--corpus {path}" for path in corpora), *(f"--external {path}" for path in external)]
    print_line(
        f"Now: ctsan train embed {' '.join(paths)} --vectors {out} --set model.embedding_dim={dim} --out RUN"
    )


def _lines(file: Path) -> list[str]:
    from ctsan.errors import UsageError

    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{file}: it cannot be read ({error.strerror}). Name a file of sentences.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file}: this is not UTF-8 text. Save it as such, one sentence a line.") from None
    if not any(map(str.strip, lines)):
        raise UsageError(f"{file}: there is nothing in it. Write one sentence a line.")
    return [line for line in lines if line.strip()]
