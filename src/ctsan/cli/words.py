"""`ctsan words`: the vocabulary, concept candidates and word vectors of a corpus."""

from __future__ import annotations

from pathlib import Path

import click

from ctsan.cli.output import print_json, print_table
from ctsan.io.messages import listed
from ctsan.io.progress import progress_bar, shown_on


@click.command("words")
@click.argument("corpora", metavar="CORPUS...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the files [default: in the cache].")
@click.option(
    "--concepts", type=click.IntRange(min=1), default=2000, show_default=True, help="Candidates, V."
)
@click.option(
    "--min-count",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="How often a word must be seen.",
)
@click.option(
    "--dim", type=click.IntRange(min=1), default=300, show_default=True, help="Size of word vectors."
)
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="For the vectors."
)
@click.option(
    "--vectors",
    type=click.Path(path_type=Path),
    help="Word vectors of others, as GloVe's: the first part of each word's vector.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    corpora: tuple[Path, ...],
    out: Path | None,
    concepts: int,
    min_count: int,
    dim: int,
    seed: int,
    vectors: Path | None,
    as_json: bool,
) -> None:
    """Learn the words of CORPUS from its training captions, and from no others.

    Several corpora are used as one.

    \b
    Examples:
      ctsan words my-clips/ --out words/
      ctsan words my-clips/ MSR-VTT/ --out words/
    """
    from ctsan.data.reading import read_corpora
    from ctsan.errors import UsageError
    from ctsan.io.paths import default_folder
    from ctsan.text.words import prepare_words

    clips = read_corpora(corpora)
    captions = list(clips.captions("train"))
    if not captions:
        raise UsageError(
            f"{listed(corpora)}: there are no training captions. Write some: 'ctsan corpus check' shows what "
            "is there."
        )
    folder = out or default_folder("words", *corpora)
    with progress_bar(len(captions), what="words", unit="caption") as bar:
        words = prepare_words(
            captions,
            num_concepts=concepts,
            min_count=min_count,
            embedding_dim=dim,
            seed=seed,
            vectors=vectors,
            progress=shown_on(bar),
        )
    words.save(folder)
    commonest = list(words.concepts.words[:10])
    if as_json:
        print_json(
            {
                "words": str(folder),
                "captions": len(captions),
                "vocabulary": len(words.vocabulary),
                "concepts": len(words.concepts.words),
                "commonest": commonest,
            }
        )
        return
    print_table(
        [
            ("training captions", len(captions)),
            ("vocabulary", len(words.vocabulary)),
            ("concept candidates", len(words.concepts.words)),
            ("commonest", ", ".join(commonest)),
            ("files", str(folder)),
        ]
    )
