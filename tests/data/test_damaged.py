"""Every kind of damage has its own message: file, line, what is wrong, and the remedy."""

from __future__ import annotations

import os

import pytest

from ctsan.data.readers import files
from ctsan.data.reading import inspect_corpus, missing_clips, read_corpus
from ctsan.errors import CorpusError
from data.conftest import Write

EXAMPLE = '{"clip": "a.mp4", "captions": ["a man drives a car"], "split": "train"}'
GOOD = '{"clip": "good.mp4", "captions": ["a cat sleeps"], "split": "train"}\n'
TIMES = "00.00.01.000\t00.00.03.000\t00.00.01.000\t00.00.03.000"
MOVIE_CLIP = "0001_Film_00.00.01.000-00.00.03.000"
VIDEO = {"video_id": "video0", "split": "train", "url": "https://youtu.be/x"}

OWN = {
    "not JSON": (
        '{"clip": "a.mp4"',
        f":2: the line is not JSON (Expecting ',' delimiter at column 17). Write {EXAMPLE}.",
    ),
    "not an object": ('["a.mp4"]', f":2: the line is a JSON list, not an object. Write {EXAMPLE}."),
    "no clip": (
        '{"captions": []}',
        ':2: the line has no "clip". Name the clip\'s file: "clip": "a.mp4", from the folder {root}.',
    ),
    "clip not a name": (
        '{"clip": 7}',
        ':2: the line has a "clip" that is not a file name (7). '
        'Name the clip\'s file: "clip": "a.mp4", from the folder {root}.',
    ),
    "captions not a list": (
        '{"clip": "a.mp4", "captions": "a man", "split": "train"}',
        ':2: "captions" is not a list of strings. Write "captions": ["one sentence", "another"].',
    ),
    "captions not strings": (
        '{"clip": "a.mp4", "captions": ["a man", 3], "split": "train"}',
        ':2: "captions" is not a list of strings. Write "captions": ["one sentence", "another"].',
    ),
    "empty caption": (
        '{"clip": "a.mp4", "captions": ["a man", " "], "split": "train"}',
        ":2: caption 2 of 'a.mp4' has no words (' '). Delete it or write a sentence.",
    ),
    "endless caption": (
        '{"clip": "a.mp4", "captions": ["' + "a man " * 501 + '"], "split": "train"}',
        ":2: caption 1 of 'a.mp4' has 1,002 words. "
        "Write a sentence, or several captions; one has at most 1,000 words.",
    ),
    "unknown split": (
        '{"clip": "a.mp4", "split": "trian"}',
        ":2: unknown split 'trian' of clip 'a.mp4'. Did you mean 'train'? Use train, val, test or blind.",
    ),
    "split not a name": (
        '{"clip": "a.mp4", "split": 1}',
        ":2: unknown split 1 of clip 'a.mp4'. Use train, val, test or blind.",
    ),
    "no split here": (
        '{"clip": "a.mp4"}',
        ":2: 1 of 2 clips have no split, the first is 'a.mp4'. "
        "Give every clip a split, or none and they are split for you.",
    ),
    "source not a name": (
        '{"clip": "a.mp4", "split": "train", "source": 5}',
        ':2: "source" is not a name (5). Write it as a string, the same for clips of one video.',
    ),
    "declared twice": (
        '{"clip": "good.mp4", "split": "train"}',
        ":2: clip 'good.mp4' is declared again, first at line 1. "
        "Gather its captions in one line, or rename one clip.",
    ),
    "same file twice": (
        '{"clip": "./good.mp4", "split": "test"}',
        ":2: clip './good.mp4', the same file as 'good.mp4', is declared again, first at line 1. "
        "Gather its captions in one line, or rename one clip.",
    ),
    "leaves the folder": (
        '{"clip": "../a.mp4", "split": "train"}',
        ":2: clip '../a.mp4' leaves the corpus folder. Move it into the folder, or give its absolute path.",
    ),
    "leaking source": (
        '{"clip": "a.mp4", "split": "test", "source": "good.mp4"}',
        ":2: source 'good.mp4' is in test here and in train with clip 'good.mp4' at line 1. "
        "Give all clips of one source the same split, or no clip a split and they are split for you.",
    ),
}


@pytest.mark.parametrize(("line", "message"), OWN.values(), ids=OWN)
def test_a_damaged_line_of_clips_jsonl(write: Write, line: str, message: str) -> None:
    root = write({"clips.jsonl": GOOD + line + "\n"})
    _, problems = inspect_corpus(root)
    assert [str(problem) for problem in problems] == [
        f"{root}/clips.jsonl{message.replace('{root}', str(root))}"
    ]


FILES = {
    "not UTF-8": (
        {"clips.jsonl": GOOD.encode() + b'{"clip": "caf\xe9.mp4", "split": "train"}\n'},
        "/clips.jsonl:2: the line is not UTF-8 (byte 0xE9 at position 14). Save the file as UTF-8.",
    ),
    "UTF-16": (
        {"clips.jsonl": GOOD.encode("utf-16")},
        "/clips.jsonl: the file is UTF-16, not UTF-8. Save the file as UTF-8.",
    ),
    "no lines": (
        {"clips.jsonl": "\n"},
        f"/clips.jsonl: the file declares no clip. Write lines such as {EXAMPLE}.",
    ),
    "two caption files": (
        {"clips.jsonl": GOOD, "clips.csv": "clip\na.mp4\n"},
        ": the folder contains both clips.jsonl and clips.csv. "
        "Keep one of them, or give the path of the file itself.",
    ),
    "empty CSV": (
        {"clips.csv": ""},
        f"/clips.csv: the file declares no clip. Write lines such as {EXAMPLE}.",
    ),
    "CSV without the column": (
        {"clips.csv": "clips,caption\na.mp4,a man\n"},
        "/clips.csv:1: the file has no column 'clip', its columns are clips, caption. "
        "Did you mean 'clips'? Begin the file with a header such as clip,caption,split.",
    ),
    "CSV with a column twice": (
        {"clips.csv": "clip,caption,captions\na.mp4,a man,\n"},
        "/clips.csv:1: the header names a column twice (clip, caption, captions). "
        "Keep one column of each name; caption and captions are one.",
    ),
    "CSV with a stray comma": (
        {"clips.csv": "clip,caption\na.mp4,a man, running\nb.mp4,a cat\n"},
        "/clips.csv:2: the row has 3 cells where the header has 2. "
        "Put a sentence that contains ',' in quotation marks.",
    ),
    "CSV with an open quotation": (
        {"clips.csv": 'clip,caption\na.mp4,a man\nb.mp4,"a cat\n'},
        "/clips.csv:3: the row is not CSV (unexpected end of data). "
        'Quote a cell as "…" and double the quotation marks inside it.',
    ),
    "CSV with a carriage return in its header": (
        {"clips.csv": "clip,cap\rtion\na.mp4,a man\n"},
        "/clips.csv:1: the row is not CSV (new-line character seen in unquoted field). "
        'Quote a cell as "…" and double the quotation marks inside it.',
    ),
    "CSV with a carriage return in a row": (
        {"clips.csv": "clip,caption\na.mp4,a man\nb.mp4,a\rcat\n"},
        "/clips.csv:3: the row is not CSV (new-line character seen in unquoted field). "
        'Quote a cell as "…" and double the quotation marks inside it.',
    ),
    "CSV with a header of more than 128 kB": (
        {"clips.csv": "clip," + "x" * 200_000 + "\na.mp4,a man\n"},
        "/clips.csv:1: the row is not CSV (field larger than field limit (131072)). "
        'Quote a cell as "…" and double the quotation marks inside it.',
    ),
    "CSV with a cell of more than 128 kB": (
        {"clips.csv": "clip,caption\na.mp4," + "x" * 200_000 + "\nb.mp4,a cat\n"},
        "/clips.csv:2: the row is not CSV (field larger than field limit (131072)). "
        'Quote a cell as "…" and double the quotation marks inside it.',
    ),
    "CSV rows that disagree": (
        {"clips.csv": "clip,caption,split\na.mp4,a man,train\na.mp4,a boy,test\n"},
        "/clips.csv:3: split 'test' contradicts 'train' of the same clip at line 2. "
        "Give all rows of clip 'a.mp4' the same split, or leave it empty.",
    ),
    "LSMDC16 columns": (
        {"LSMDC16_annos_training.csv": f"{MOVIE_CLIP}\t{TIMES}\tA man runs.\n{MOVIE_CLIP}\tA man runs.\n"},
        "/LSMDC16_annos_training.csv:2: the row has 2 columns instead of 6. "
        "Columns are separated by tabs. Copy the row again from the official file, or delete it.",
    ),
    "LSMDC16 clip id": (
        {"LSMDC16_annos_training.csv": f"{MOVIE_CLIP}\t{TIMES}\tA man.\n0001_Film\t{TIMES}\tA man.\n"},
        "/LSMDC16_annos_training.csv:2: '0001_Film' is not a clip id, which ends in two times such as "
        "00.03.07.170-00.03.09.675. Copy the row again from the official file, or delete it.",
    ),
    "LSMDC16 clip in two splits": (
        {
            "LSMDC16_annos_training.csv": f"{MOVIE_CLIP}\t{TIMES}\tA man runs.\n",
            "LSMDC16_annos_val.csv": f"{MOVIE_CLIP}\t{TIMES}\tA man runs.\n",
        },
        f"/LSMDC16_annos_val.csv:1: clip '{MOVIE_CLIP}' is in val here and in train at "
        "LSMDC16_annos_training.csv:1. Copy the row again from the official file, or delete it.",
    ),
    "LSMDC16 without a blank": (
        {"LSMDC16_annos_val_FIB.csv": f"{MOVIE_CLIP}\t{TIMES}\tA man runs.\tA man.\truns\n"},
        "/LSMDC16_annos_val_FIB.csv:1: the question has 0 blanks (_____) instead of one. "
        "Copy the row again from the official file, or delete it.",
    ),
    "LSMDC16 answer index": (
        {"LSMDC16_multiple_choice_test_randomized.csv": f"{MOVIE_CLIP}\t{TIMES}\ta\tb\tc\td\te\t6\n"},
        "/LSMDC16_multiple_choice_test_randomized.csv:1: the answer's index is '6' instead of 1 to 5. "
        "Copy the row again from the official file, or delete it.",
    ),
    "MSR-VTT not JSON": (
        {"test_videodatainfo.json": '{\n"videos": [,]}'},
        "/test_videodatainfo.json:2: the file is not JSON (Expecting value). Copy the official file again.",
    ),
    "MSR-VTT without sentences": (
        {"test_videodatainfo.json": {"videos": [VIDEO]}},
        '/test_videodatainfo.json: the file has no list "sentences". Copy the official file again.',
    ),
    "MSR-VTT unknown video": (
        {
            "test_videodatainfo.json": {
                "videos": [VIDEO],
                "sentences": [{"video_id": "video9", "caption": "a man runs"}] * 2,
            }
        },
        "/test_videodatainfo.json: 2 sentences of unknown video 'video9'. "
        'Add it to "videos", or delete its sentences.',
    ),
    "MSR-VTT unknown split": (
        {"test_videodatainfo.json": {"videos": [{**VIDEO, "split": "tset"}], "sentences": []}},
        "/test_videodatainfo.json: unknown split 'tset' of clip 'video0'. "
        "Did you mean 'test'? Use train, val, test or blind.",
    ),
    "MSR-VTT declared twice": (
        {"test_videodatainfo.json": {"videos": [VIDEO, VIDEO], "sentences": []}},
        "/test_videodatainfo.json: video 'video0' is declared again in videos[1], first in "
        "test_videodatainfo.json. Delete one of the two.",
    ),
    "MSVD without a sentence": (
        {"AllVideoDescriptions.txt": "a_1_2 a man runs\na_1_2\n"},
        "/AllVideoDescriptions.txt:2: clip 'a_1_2' has no sentence on this line. "
        "Write ID_start_end and a sentence, separated by a space, or delete the line.",
    ),
    "MSVD without times": (
        {"AllVideoDescriptions.txt": "a_1_2 a man runs\na man runs\n"},
        "/AllVideoDescriptions.txt:2: 'a' is not of the form ID_start_end. "
        "Write ID_start_end and a sentence, separated by a space, or delete the line.",
    ),
    "MSVD mapping": (
        {"AllVideoDescriptions.txt": "a_1_2 a man runs\n", "youtube_mapping.txt": "a_1_2 vid1\na_1_2\n"},
        "/youtube_mapping.txt:2: 'a_1_2' is not of the form 'ID_start_end vidN'. "
        "Copy the official file again.",
    ),
    "MSVD table without a column": (
        {"video_corpus.csv": "VideoID,Start,End,Description\na,1,2,a man runs\n"},
        "/video_corpus.csv:1: the table has no column Language. "
        "Its header needs VideoID, Start, End, Language, Description.",
    ),
    "MSVD without clips": (
        {"AllVideoDescriptions.txt": "# nothing yet\n"},
        ": the corpus has no clips. Check that its files are complete.",
    ),
    "nothing": (
        {},
        ": the folder is empty. Put videos or pictures into it (such as .mp4 and .jpg), or a clips.jsonl, or "
        "the files of LSMDC16, MSR-VTT or MSVD.",
    ),
    "no clips": (
        {"notes.txt": "hello"},
        ": the folder contains neither clips nor a caption file. "
        "Put videos or pictures into it (such as .mp4 and .jpg), or a clips.jsonl, or the files of LSMDC16, "
        "MSR-VTT or MSVD.",
    ),
}


@pytest.mark.parametrize(("files", "message"), FILES.values(), ids=FILES)
def test_a_damaged_corpus(write: Write, files: dict[str, object], message: str) -> None:
    root = write(files)
    _, problems = inspect_corpus(root)
    assert [str(problem) for problem in problems] == [f"{root}{message}"]
    with pytest.raises(CorpusError) as caught:
        read_corpus(root)
    assert str(caught.value) == f"{root}{message}"
    assert caught.value.exit_code == 2


def test_a_path_that_does_not_exist(write: Write) -> None:
    root = write({"a.mp4": ""})
    _, problems = inspect_corpus(root.parent / "corpsu")
    assert (
        str(problems[0]) == f"{root.parent}/corpsu: it does not exist. Did you mean 'corpus'? Check the path."
    )


def test_a_file_of_another_kind(write: Write) -> None:
    file = write({"notes.txt": "hello"}) / "notes.txt"
    _, problems = inspect_corpus(file)
    assert str(problems[0]) == (
        f"{file}: this is neither a clip nor a caption file. "
        "Give a folder, a clips.jsonl, a clips.csv or a clip."
    )


def test_one_file_of_an_official_corpus(write: Write) -> None:
    root = write({"LSMDC16_annos_val.csv": f"{MOVIE_CLIP}\t{TIMES}\tA man runs.\n"})
    _, problems = inspect_corpus(root / "LSMDC16_annos_val.csv")
    assert str(problems[0]) == (
        f"{root}/LSMDC16_annos_val.csv: this is one of the files of the lsmdc16 format. "
        f"Give their folder instead: {root}"
    )


def test_a_missing_clip_stops_nothing_and_is_named_with_its_line(write: Write) -> None:
    root = write({"clips.jsonl": [{"clip": "a.mp4"}, {"clip": "b.mp4"}], "a.mp4": ""})
    corpus = read_corpus(root)
    assert [str(problem) for problem in missing_clips(corpus)] == [
        f"{root}/clips.jsonl:2: the file of clip 'b.mp4' is missing ({root}/b.mp4). "
        "Put it there, name its features with --features, or delete the clip's entry."
    ]


def test_all_problems_come_in_one_go(write: Write) -> None:
    lines = [line for line, _ in OWN.values()]
    root = write({"clips.jsonl": GOOD + "\n".join(lines) + "\n"})
    _, problems = inspect_corpus(root)
    silent = 2 + list(OWN).index("no split here")  # here the second line to declare a.mp4, and told of so
    assert {problem.line for problem in problems} | {silent} == set(range(2, len(lines) + 2))
    with pytest.raises(CorpusError) as caught:
        read_corpus(root)
    assert list(caught.value.problems) == problems
    assert str(caught.value).count("\n") == len(problems) - 1


@pytest.mark.parametrize(
    "junk",
    [
        b"a,b\rc\n\0,\r\n",
        b"x" * 200_000,
        b"\x00\xff\xfe\x00" * 50,
        b"[" * 100_000,
        b'"' * 5000,
        b"\t" * 300 + b"\n" * 9,
    ],
)
@pytest.mark.parametrize(
    "name",
    [
        "clips.jsonl",
        "clips.csv",
        "LSMDC16_annos_training.csv",
        "LSMDC16_multiple_choice_valid.csv",
        "train_val_videodatainfo.json",
        "AllVideoDescriptions.txt",
        "MSR Video Description Corpus.csv",
    ],
)
def test_junk_is_a_problem_and_never_a_traceback(write: Write, name: str, junk: bytes) -> None:
    _, problems = inspect_corpus(write({name: junk}))
    assert problems


def test_a_pipe_is_not_waited_for(write: Write) -> None:
    root = write({"a.mp4": ""})
    os.mkfifo(root / "clips.jsonl")
    _, problems = inspect_corpus(root / "clips.jsonl")
    assert str(problems[0]) == (
        f"{root}/clips.jsonl: it is not a regular file. Name a file that you may read."
    )


def test_a_line_as_long_as_memory_is_not_read(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 1 << 20)
    root = write({"clips.jsonl": GOOD + '{"clip": "' + "x" * (2 << 20)})
    _, problems = inspect_corpus(root)
    assert str(problems[0]) == (
        f"{root}/clips.jsonl:2: the line is longer than 1 MB. Write one clip, item or sentence a line."
    )


@pytest.mark.parametrize("repeat", ["1" * 5_000, "0", "x"])
def test_a_number_of_thousands_of_digits_is_no_number(write: Write, repeat: str) -> None:
    root = write({"clips.csv": f"clip,repeat\na.mp4,{repeat}\n"})
    _, problems = inspect_corpus(root)
    assert [problem.what[:24] for problem in problems] == ['"repeat" is not a whole ']
    clip = "abc_1_2"
    root = write(
        {"AllVideoDescriptions.txt": f"{clip} a dog runs\n", "youtube_mapping.txt": f"{clip} vid{repeat}x"}
    )
    assert inspect_corpus(root)[1]
