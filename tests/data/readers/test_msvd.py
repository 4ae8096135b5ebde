from __future__ import annotations

from ctsan.data.reading import read_corpus
from data.conftest import Write

TEXT = """# Descriptions of the clips, one a line
#

-aB_3c_D-9_10_15 a squirrel eats a nut
-aB_3c_D-9_10_15 a small animal is eating
534_49_57_100_105 two men talk
zz_0_5 a pan is on the stove
-aB_3c_D-9_20_25 the squirrel runs away
"""
MAPPING = "-aB_3c_D-9_10_15 vid1200\n-aB_3c_D-9_20_25 vid1201\n534_49_57_100_105 vid1301\n"


def test_text_file_sources_and_the_customary_split(write: Write) -> None:
    root = write({"AllVideoDescriptions.txt": TEXT, "youtube_mapping.txt": MAPPING})
    corpus = read_corpus(root)
    assert [(clip.id, clip.source, clip.split, len(clip.captions)) for clip in corpus] == [
        ("-aB_3c_D-9_10_15", "-aB_3c_D-9", "train", 2),
        ("534_49_57_100_105", "534_49_57", "test", 1),
        ("-aB_3c_D-9_20_25", "-aB_3c_D-9", "val", 1),
    ]
    assert corpus.clips[0].path == root / "YouTubeClips" / "-aB_3c_D-9_10_15.avi"
    assert corpus.clips[0].origin == (root / "AllVideoDescriptions.txt", 4)
    assert corpus.notes == (
        "1 of 4 clips are left out, because youtube_mapping.txt does not list them.",
        "1 source is in two of the official splits, the first is '-aB_3c_D-9': "
        "-aB_3c_D-9_10_15 in train, -aB_3c_D-9_20_25 in val.",
    )


def test_without_a_mapping_the_split_is_ours(write: Write) -> None:
    corpus = read_corpus(write({"AllVideoDescriptions.txt": TEXT}))
    sides: dict[str, set[str | None]] = {clip.source: set() for clip in corpus}
    for clip in corpus:
        sides[clip.source].add(clip.split)
    assert all(len(splits) == 1 for splits in sides.values())
    assert set.union(*sides.values()) == {"train", "val", "test"}
    assert corpus.notes == ("The corpus has no splits; they are generated from seed 0.",)


def test_clips_under_their_own_or_their_mapped_names(write: Write) -> None:
    files = {"YouTubeClips/zz_0_5.avi": "", "vid1200.mp4": ""}
    mapping = MAPPING + "zz_0_5 vid1302\n"
    root = write({"AllVideoDescriptions.txt": TEXT, "youtube_mapping.txt": mapping, **files})
    paths = {clip.id: clip.path for clip in read_corpus(root)}
    assert paths["zz_0_5"] == root / "YouTubeClips/zz_0_5.avi"
    assert paths["-aB_3c_D-9_10_15"] == root / "vid1200.mp4"


def test_the_table_gives_its_english_rows(write: Write) -> None:
    table = (
        "VideoID,Start,End,WorkerID,Source,AnnotationTime,Language,Description\n"
        'a-b_c,3,9,1,clean,20,English,"a man, with a dog, walks"\n'
        "a-b_c,3,9,2,clean,20,German,ein Mann geht\n"
        "a-b_c,3,9,3,unverified,20,English,\n"
        'a-b_c,3,9,4,clean,20,English,"someone\nwalks"\n'
    )
    (clip,) = read_corpus(write({"MSR Video Description Corpus.csv": table}))
    assert (clip.id, clip.source) == ("a-b_c_3_9", "a-b_c")
    assert clip.captions == ("a man, with a dog, walks", "someone\nwalks")
