from __future__ import annotations

from ctsan.data.reading import missing_clips, read_corpus
from data.conftest import Write


def video(number: int, split: str, url: str, **more: object) -> dict[str, object]:
    times = {"start time": 1.5, "end time": 9.0}
    return {
        "video_id": f"video{number}",
        "split": split,
        "category": 3,
        "url": url,
        "id": number,
        **times,
        **more,
    }


def sentences(*pairs: tuple[int, str]) -> list[dict[str, object]]:
    return [
        {"video_id": f"video{number}", "caption": text, "sen_id": n} for n, (number, text) in enumerate(pairs)
    ]


TRAIN_VAL = {
    "info": {},
    "videos": [
        video(0, "train", "https://www.youtube.com/watch?v=abc_-123&t=4"),
        video(1, "validate", "https://youtu.be/xyz"),
    ],
    "sentences": sentences((1, "a dog swims"), (0, "a man cooks"), (0, "someone fries an egg")),
}
TEST = {"info": {}, "videos": [video(7010, "test", "")], "sentences": sentences((7010, "a song is sung"))}


def test_both_files_make_one_corpus(write: Write) -> None:
    files = {"train_val_videodatainfo.json": TRAIN_VAL, "test_videodatainfo.json": TEST}
    clips = {"TrainValVideo/video0.mp4": "", "TestVideo/video7010.mp4": "", "video1.avi": ""}
    root = write({**files, **clips})
    corpus = read_corpus(root)
    assert [(clip.id, clip.split, clip.source, clip.captions) for clip in corpus] == [
        ("video0", "train", "abc_-123", ("a man cooks", "someone fries an egg")),
        ("video1", "val", "xyz", ("a dog swims",)),
        ("video7010", "test", "video7010", ("a song is sung",)),
    ]
    assert [clip.path for clip in corpus] == [
        root / "TrainValVideo/video0.mp4",
        root / "video1.avi",
        root / "TestVideo/video7010.mp4",
    ]
    assert corpus.clips[0].extra["category"] == 3
    assert missing_clips(corpus) == []


def test_of_two_files_of_one_name_the_nearest_is_read_then_the_first_by_name(write: Write) -> None:
    copies = ["z/video7010.mp4", "a/deep/video7010.mp4", "b/video7010.avi", ".old/video7010.mp4"]
    root = write({"test_videodatainfo.json": TEST, **dict.fromkeys(copies, "")})
    assert [clip.path for clip in read_corpus(root)] == [root / "b/video7010.avi"]


def test_one_of_the_files_is_enough_and_a_clip_may_be_missing(write: Write) -> None:
    root = write({"test_videodatainfo.json": TEST})
    corpus = read_corpus(root)
    (problem,) = missing_clips(corpus)
    assert str(problem) == (
        f"{root}/video7010.mp4: the file of clip 'video7010' is missing ({root}/video7010.mp4). "
        "Put it there, name its features with --features, or delete the clip's entry."
    )
