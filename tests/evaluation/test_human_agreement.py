"""People's captions are judged as a system's would be."""

from __future__ import annotations

import pytest

from ctsan.evaluation.coco_metrics import score_captions
from ctsan.evaluation.human_agreement import score_human_captions

CAPTIONS = {
    "dog.mp4": ["a dog runs on the grass", "a brown dog runs", "the dog is on the grass", "an animal"],
    "alone.mp4": ["nobody else has said anything"],
    "cup.mp4": ["a cup of coffee on a table", "coffee on a table", "someone drinks a cup of coffee"],
}


def test_one_person_is_a_system_that_the_others_judge() -> None:
    found = score_human_captions(CAPTIONS, per_clip=1, java=None)
    clips = ("dog.mp4", "cup.mp4")
    wanted = score_captions(
        {clip: CAPTIONS[clip][1:] for clip in clips}, {clip: CAPTIONS[clip][0] for clip in clips}, java=None
    )
    assert found.tokeniser == wanted.tokeniser == "python"
    assert found.notes == wanted.notes
    assert {name: statistic.value for name, statistic in found.statistics.items()} == pytest.approx(
        {name: statistic.value for name, statistic in wanted.statistics.items()}
    )


def test_several_people_are_one_row_a_clip() -> None:
    found = score_human_captions(CAPTIONS, per_clip=3, java=None)
    rounds = [
        score_captions(
            {clip: own[:number] + own[number + 1 :] for clip, own in CAPTIONS.items() if len(own) > 1},
            {clip: own[number] for clip, own in CAPTIONS.items() if len(own) > 1},
            java=None,
        )
        for number in range(3)
    ]
    rouge, bleu = found.statistics["ROUGE-L"], found.statistics["BLEU-2"]
    assert len(rouge.rows) == 2
    assert rouge.value == pytest.approx(sum(each.statistics["ROUGE-L"].value for each in rounds) / 3)
    assert bleu.rows.sum(axis=0) == pytest.approx(
        sum(each.statistics["BLEU-2"].rows.sum(axis=0) for each in rounds)
    )


def test_people_who_agree_are_always_right() -> None:
    found = score_human_captions(
        {"a": ["a dog runs on grass"] * 3, "b": ["a cat sleeps on a bed"] * 2}, per_clip=9, java=None
    )
    assert found.statistics["BLEU-4"].value == pytest.approx(1)
    assert found.statistics["ROUGE-L"].value == pytest.approx(1)
