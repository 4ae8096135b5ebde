from __future__ import annotations

from collections import Counter

from ctsan.data.corpus import BlankItem, ChoiceItem, QueryItem
from ctsan.data.reading import inspect_corpus, missing_clips, read_corpus
from data.conftest import Write

TIMES = "00.00.01.000\t00.00.03.000\t00.00.01.000\t00.00.03.000"


def clip(movie: str, number: int) -> str:
    return f"{movie}_00.00.{number:02}.000-00.00.{number + 2:02}.500"


def row(movie: str, number: int, *cells: str) -> str:
    return "\t".join((clip(movie, number), TIMES, *cells)) + "\n"


CAPTIONS = {
    "LSMDC16_annos_training.csv": row("0001_A_Film", 1, 'SOMEONE reads "Bone" aloud.')
    + row("0001_A_Film", 1, 'He says "no.')
    + row("0001_A_Film", 4, "A dog runs."),
    "LSMDC16_annos_val.csv": row("1002_Other_2", 1, "Rain falls on the roof."),
    "LSMDC16_annos_test.csv": row("3003_LAST", 1, "She opens the door.")
    + row("3003_LAST", 4, "It is night."),
    "LSMDC16_annos_blindtest.csv": f"{clip('4004_BLIND', 1)}\t{TIMES}\n{clip('4004_BLIND', 4)}\t{TIMES}\t\n",
}


def test_captions_splits_and_movies(write: Write) -> None:
    root = write({**CAPTIONS, "0001_A_Film/" + clip("0001_A_Film", 1) + ".avi": ""})
    corpus = read_corpus(root)
    assert [(each.split, each.source, len(each.captions)) for each in corpus] == [
        ("train", "0001_A_Film", 2),
        ("train", "0001_A_Film", 1),
        ("val", "1002_Other_2", 1),
        ("test", "3003_LAST", 1),
        ("test", "3003_LAST", 1),
        ("blind", "4004_BLIND", 0),
        ("blind", "4004_BLIND", 0),
    ]
    first = corpus.clips[0]
    assert first.captions == ('SOMEONE reads "Bone" aloud.', 'He says "no.')
    assert first.path == root / "0001_A_Film" / f"{first.id}.avi"
    assert first.origin == (root / "LSMDC16_annos_training.csv", 1)
    assert (corpus.name, corpus.format, corpus.notes) == ("LSMDC16", "lsmdc16", ())


def test_clips_are_found_in_their_movies_folders_and_below_a_folder_of_videos(write: Write) -> None:
    one, other, absent = clip("0001_A_Film", 1), clip("1002_Other_2", 1), clip("0001_A_Film", 4)
    root = write({**CAPTIONS, f"0001_A_Film/{one}.avi": "", f"videos/1002_Other_2/{other}.mp4": ""})
    corpus = read_corpus(root)
    paths = {each.id: each.path for each in corpus}
    assert paths[one] == root / "0001_A_Film" / f"{one}.avi"
    assert paths[other] == root / "videos" / "1002_Other_2" / f"{other}.mp4"
    assert paths[absent] == root / "0001_A_Film" / f"{absent}.avi"
    assert len(missing_clips(corpus)) == len(corpus) - 2


def test_the_someone_variant_is_read_in_place_of_the_first_release(write: Write) -> None:
    variant = row("0001_A_Film", 1, "SOMEONE reads.")
    corpus = read_corpus(write({**CAPTIONS, "LSMDC16_annos_training_someone.csv": variant}))
    assert [each.captions for each in corpus.split("train")] == [("SOMEONE reads.",)]


def test_multiple_choice(write: Write) -> None:
    wrong = ("A cat sleeps.", "Cars pass.", "He eats.", "They dance.")
    training = "".join(row("0001_A_Film", n, f"Right {n}.", *wrong) for n in range(1, 41))
    test = row("3003_LAST", 1, *wrong[:2], "She opens the door.", *wrong[2:], "3")
    files = {
        "LSMDC16_multiple_choice_train.csv": training,
        "LSMDC16_multiple_choice_test_randomized.csv": test,
    }
    corpus = read_corpus(write({**CAPTIONS, **files}))
    (item,) = corpus.items["choose", "test"]
    assert isinstance(item, ChoiceItem)
    assert (item.clip, item.choices[item.answer], item.answer) == (
        clip("3003_LAST", 1),
        "She opens the door.",
        2,
    )
    items = [item for item in corpus.items["choose", "train"] if isinstance(item, ChoiceItem)]
    assert [item.choices[item.answer] for item in items] == [f"Right {n}." for n in range(1, 41)]
    assert all(set(wrong) < set(item.choices) for item in items)
    assert set(Counter(item.answer for item in items)) == {0, 1, 2, 3, 4}
    assert read_corpus(corpus.root).items == corpus.items


def test_several_blanks_of_one_clip_below_a_header(write: Write) -> None:
    header = "id\tstart\tend\tstart2\tend2\tsentence\tquestion\tanswer\n"
    sentence = "She opens the door."
    body = row("3003_LAST", 1, sentence, "She _____ the door.", "opens")
    body += row("3003_LAST", 1, sentence, "She opens the _____.", "door")
    corpus = read_corpus(write({**CAPTIONS, "LSMDC16_annos_test_FIB.csv": header + body}))
    assert corpus.items["fill", "test"] == (
        BlankItem(clip("3003_LAST", 1), "She _____ the door.", "opens"),
        BlankItem(clip("3003_LAST", 1), "She opens the _____.", "door"),
    )


def test_retrieval_queries_and_clips_that_only_an_item_file_names(write: Write) -> None:
    body = row("3003_LAST", 1, "She opens the door.") + row("3003_LAST", 7, "He leaves.")
    corpus = read_corpus(write({**CAPTIONS, "LSMDC16_challenge_1000_publictect.csv": body}))
    assert corpus.items["rank", "test"] == (
        QueryItem("She opens the door.", clip("3003_LAST", 1)),
        QueryItem("He leaves.", clip("3003_LAST", 7)),
    )
    told = {each.id: each.captions for each in corpus.split("test")}
    assert told[clip("3003_LAST", 1)] == ("She opens the door.",)
    assert told[clip("3003_LAST", 7)] == ("He leaves.",)


PARAPHRASES = "LSMDC16_paraphrased_train_subset.txt"


def test_paraphrases_are_further_captions_of_training_clips(write: Write) -> None:
    body = row("0001_A_Film", 4, "A dog runs.", "dog is running") + row(
        "0001_A_Film", 4, "A dog runs.", "A dog runs."
    )
    untouched = {
        "LSMDC16_paraphrased_test.txt": row("3003_LAST", 1, "She opens the door.", "woman opens door")
    }
    plain = read_corpus(write(CAPTIONS))
    corpus = read_corpus(write({**CAPTIONS, PARAPHRASES: body, **untouched}))
    assert [len(each.captions) for each in corpus] == [2, 2, 1, 1, 1, 0, 0]
    assert corpus.clips[1].captions == ("A dog runs.", "dog is running")
    assert set(corpus.captions("train")) - set(plain.captions("train")) == {"dog is running"}
    assert corpus.notes == ()


def test_paraphrases_leave_the_official_items_as_they_are(write: Write) -> None:
    question = row("0001_A_Film", 4, "A dog runs.", "A _____ runs.", "dog")
    files = {**CAPTIONS, "LSMDC16_annos_training_FIB.csv": question}
    corpus = read_corpus(
        write({**files, PARAPHRASES: row("0001_A_Film", 4, "A dog runs.", "dog is running")})
    )
    assert corpus.items["fill", "train"] == (BlankItem(clip("0001_A_Film", 4), "A _____ runs.", "dog"),)


def test_a_paraphrase_of_a_clip_that_no_file_has_is_counted_and_left_out(write: Write) -> None:
    body = row("0001_A_Film", 4, "A dog runs.", "dog is running") + row(
        "0001_A_Film", 9, "Gone.", "it is gone"
    )
    corpus, problems = inspect_corpus(write({**CAPTIONS, PARAPHRASES: body}))
    assert problems == []
    assert len(corpus) == 7
    assert corpus.notes == (
        f"1 row is left out of {PARAPHRASES}: no other file has the clip. "
        f"The first is {clip('0001_A_Film', 9)!r} at line 2.",
    )


def test_a_paraphrase_of_a_clip_of_another_split_is_a_problem_and_is_not_learnt(write: Write) -> None:
    body = row("0001_A_Film", 4, "A dog runs.", "dog is running")
    body += row("3003_LAST", 1, "She opens the door.", "woman opens door") + row(
        "0001_A_Film", 1, "No paraphrase."
    )
    corpus, problems = inspect_corpus(write({**CAPTIONS, PARAPHRASES: body}))
    assert [(each.file.name, each.line) for each in problems] == [(PARAPHRASES, 2), (PARAPHRASES, 3)]
    assert problems[0].what == (
        f"clip {clip('3003_LAST', 1)!r} is in train here and in test at LSMDC16_annos_test.csv:1"
    )
    assert problems[1].what == "the row has 6 columns instead of 7"
    assert {each.id: each.captions for each in corpus}[clip("3003_LAST", 1)] == ("She opens the door.",)


def test_an_official_split_that_leaks_is_noted_and_kept(write: Write) -> None:
    captions = {**CAPTIONS, "LSMDC16_annos_val.csv": row("0001_A_Film", 8, "Rain falls.")}
    corpus, problems = inspect_corpus(write(captions))
    assert problems == []
    assert corpus.notes == (
        "1 source is in two of the official splits, the first is '0001_A_Film': "
        f"{clip('0001_A_Film', 1)} in train, {clip('0001_A_Film', 8)} in val.",
    )
