"""The real `ctsan` command, in a process of its own, on a corpus that it made itself."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clip_making import counting, encode
from commands import ctsan
from ctsan.cli import COMMANDS
from ctsan.video.store import FeatureStore

EXAMPLES = Path(__file__).parents[2] / "examples/clips"


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "shapes"
    ctsan("corpus", "make", folder, "--clips", 20, "--seed", 3)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_help_lists_every_command() -> None:
    shown = ctsan("--help").stdout
    for command in ("corpus", "features", "words", "backbone"):
        assert command in shown
        assert "Usage" in ctsan(command, "--help").stdout


def test_help_promises_of_a_corpus_what_its_commands_do() -> None:
    [promise] = [line for line in ctsan("--help").stdout.splitlines() if line.split()[:1] == ["corpus"]]
    assert promise.split(maxsplit=1)[1] == "Check and make corpora, and build their test items."
    commands = ctsan("corpus", "--help").stdout.partition("Commands:")[2]
    assert [line.split()[0] for line in commands.strip().splitlines()] == [
        "check",
        "human-agreement",
        "items",
        "make",
    ]


def test_help_imports_nothing_heavy() -> None:
    script = "import sys, ctsan.cli as c\ntry: c.main()\nfinally: print(*sys.modules)"
    command = [sys.executable, "-c", script, "--help"]
    modules = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert not {"torch", "av", "numpy", "spacy", "gensim", "onnxruntime"} & set(modules.split())


def test_a_mistyped_command_gets_a_suggestion() -> None:
    assert "Did you mean 'features'?" in ctsan("featurs", exit_code=2).stderr


def test_check_says_what_the_corpus_holds(shapes: Path) -> None:
    table = ctsan("corpus", "check", shapes).stdout
    assert "clips" in table
    summary = json.loads(ctsan("corpus", "check", shapes, "--json").stdout)
    assert summary["clips"] == 20
    assert summary["captions"] == 100
    assert sum(split["clips"] for split in summary["splits"].values()) == 20
    assert (summary["missing"], summary["unreadable"], summary["problems"]) == (0, 0, [])
    assert 20 * 3 / 3600 < summary["hours"] < 20 * 6 / 3600


def test_check_lists_every_problem_and_exits_with_2(tmp_path: Path) -> None:
    encode(tmp_path / "good.mp4", counting(10))
    (tmp_path / "text.mp4").write_text("no video " * 200)
    rows = [
        '{"clip": "good.mp4", "captions": ["a clip"], "split": "train"}',
        "{broken",
        '{"clip": "good.mp4", "captions": ["again"], "split": "train"}',
        '{"clip": "gone.mp4", "captions": ["a clip"], "split": "train"}',
        '{"clip": "new.mp4", "captions": ["a clip"], "split": "tset"}',
        '{"clip": "text.mp4", "captions": ["a clip"], "split": "train"}',
    ]
    (tmp_path / "clips.jsonl").write_text("\n".join(rows))
    said = ctsan("corpus", "check", tmp_path, exit_code=2).stderr
    for line, what in ((2, "JSON"), (3, "good.mp4"), (4, "missing"), (5, "Did you mean 'test'?")):
        assert any(f"clips.jsonl:{line}:" in row and what in row for row in said.splitlines()), (
            line,
            what,
            said,
        )
    assert "text.mp4: this is text, not a video" in said
    # and a command that learns from it refuses to begin
    assert "clips.jsonl:2:" in ctsan("features", tmp_path, "--out", tmp_path / "f", exit_code=2).stderr


def test_people_are_judged_by_each_other(shapes: Path, tmp_path: Path) -> None:
    found = json.loads(
        ctsan("corpus", "people", shapes, "--split", "train", "--per-clip", 2, "--json").stdout
    )
    assert found["clips"] == sum(
        '"train"' in line for line in (shapes / "clips.jsonl").read_text().splitlines()
    )
    for metric in ("CIDEr", "BLEU-4", "ROUGE-L"):
        low, high = found["intervals"][metric]
        assert 0 < low < found["metrics"][metric] < high
    shown = ctsan("corpus", "people", shapes, "--per-clip", 2)
    assert "captions of 3 clips of the split 'test'" in shown.stdout
    assert "Java was not found" in shown.stderr
    (tmp_path / "clips.jsonl").write_text('{"clip": "one.mp4", "captions": ["a dog"]}\n')
    assert "no clip has two captions" in ctsan("corpus", "people", tmp_path, exit_code=2).stderr


def test_features_are_made_once_and_reported(shapes: Path, tmp_path: Path) -> None:
    first = json.loads(ctsan("features", shapes, "--out", tmp_path / "f", "--json").stdout)
    assert (first["clips"], first["new"], first["unreadable"]) == (20, 20, {})
    again = json.loads(ctsan("features", shapes, "--out", tmp_path / "f", "--json").stdout)
    assert (again["clips"], again["new"], again["frames"]) == (20, 0, 0)
    store = FeatureStore(tmp_path / "f")
    assert len(store) == 20
    assert all(8 <= len(store[clip].maps) <= 12 for clip in store)  # 3.5 to 5 s
    assert (
        "made in another way"
        in ctsan("features", shapes, "--out", tmp_path / "f", "--hflip", exit_code=2).stderr
    )


def test_features_killed_and_run_again_are_the_same_bytes(shapes: Path, tmp_path: Path) -> None:
    ctsan("features", shapes, "--out", tmp_path / "whole")
    command = [sys.executable, "-m", "ctsan", "features", str(shapes), "--out", str(tmp_path / "f")]
    for files in (1, 8, 14):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and len(list(tmp_path.glob("f/clips/*/*.safetensors"))) < files:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
    ctsan("features", shapes, "--out", tmp_path / "f")
    assert contents(tmp_path / "f") == contents(tmp_path / "whole")


def test_an_interrupted_command_says_that_it_can_go_on(shapes: Path, tmp_path: Path) -> None:
    many = tmp_path / "many"  # enough for a busy machine to interrupt it before it is done
    many.mkdir()
    for number in range(20):
        for clip in shapes.glob("clips/*.mp4"):
            shutil.copy(clip, many / f"{number}-{clip.name}")
    command = [sys.executable, "-m", "ctsan", "features", str(many), "--out", str(tmp_path / "f")]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )
    while process.poll() is None and not list(tmp_path.glob("f/clips/*/*.safetensors")):
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert "Stopped. What is done is kept: the same command goes on from there." in said
    assert "Traceback" not in said


def test_only_commands_that_can_go_on_say_so_when_they_are_stopped() -> None:
    script = """
import sys, click, ctsan.cli as cli

@click.command()
def command():
    raise KeyboardInterrupt

cli.LazyGroup.get_command = lambda *_: command
for name in cli.COMMANDS:
    sys.argv = ["ctsan", name]
    try:
        cli.main()
    except SystemExit as stopped:
        print(name, stopped.code, file=sys.stderr)
"""
    command = [sys.executable, "-W", "error", "-c", script]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    lines = [line for line in said.splitlines() if line]
    messages = dict(zip(lines[1::2], lines[::2], strict=True))
    assert list(messages) == [f"{name} 130" for name in COMMANDS]
    go_on = {name.split()[0] for name, message in messages.items() if "goes on from there" in message}
    assert go_on == {"train", "features", "index", "tables"}
    assert messages["describe 130"] == "Stopped."


def test_names_that_are_not_utf8_stop_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8:strict")
    good, broken = tmp_path / "caf\udce9.mp4", tmp_path / "bad\udcff.mp4"
    shutil.copy(EXAMPLES / "cat.mp4", good)
    broken.write_text("no video", encoding="utf-8")
    shown = ctsan("describe", tmp_path, exit_code=1)
    assert f"{tmp_path}/caf\\udce9.mp4: a " in shown.stdout
    assert f"{tmp_path}/bad\\udcff.mp4: this is text, not a video" in shown.stderr
    lines = [
        json.loads(line) for line in ctsan("describe", tmp_path, "--json", exit_code=1).stdout.splitlines()
    ]
    assert {Path(line["clip"]): "caption" in line for line in lines} == {good: True, broken: False}


@pytest.mark.parametrize("encoding", ["utf-8:strict", "latin-1:backslashreplace", "ascii:strict"])
def test_json_can_be_read_back_in_any_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    name = "caf\u00e9 \u72ac \U0001f415 \udcff.mp4"
    script = f"from ctsan.cli.output import print_json\nprint_json({{'clip': {name!a}}})"
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    assert json.loads(printed.decode(encoding.partition(":")[0])) == {"clip": name}


def test_a_folder_of_anything_gives_features_of_what_can_be_read(tmp_path: Path) -> None:
    clips = tmp_path / "clips"
    clips.mkdir()
    encode(clips / "a.mkv", counting(30))
    encode(clips / "b.gif", counting(30))
    (clips / "c.mp4").write_bytes(b"")
    result = ctsan("features", clips, "--out", tmp_path / "f")
    assert "2 clips with tiny-vit-5m features" in result.stdout
    assert "1 clip could not be read:" in result.stderr
    assert "c.mp4: the file is empty (0 bytes). Copy or download it again." in result.stderr
    (clips / "a.mkv").unlink()
    (clips / "b.gif").unlink()
    assert "Not one clip of " in ctsan("features", clips, "--out", tmp_path / "g", exit_code=2).stderr


def test_places_that_cannot_be_written_say_so(shapes: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for command in (("features", shapes), ("words", shapes), ("corpus", "items", shapes)):
        said = ctsan(*command, "--out", tmp_path / "file" / "x", exit_code=2).stderr
        assert str(tmp_path / "file") in said
        assert "Not a directory" in said


def test_item_files_are_checked_with_their_corpus(shapes: Path, tmp_path: Path) -> None:
    good = '{"query": "a ball rolls", "clip": "clips/0000.mp4"}'
    (tmp_path / "rank.jsonl").write_text(f'{good}\n{{"query": "", "clip": "gone.mp4"}}\n')
    said = ctsan("corpus", "check", shapes, "--items", tmp_path / "rank.jsonl", exit_code=2).stderr
    assert "rank.jsonl:2: clip 'gone.mp4' is not in the corpus. Name a clip of the corpus." in said
    assert "rank.jsonl:2: the query has no words" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--backbone", "resnet50"), "resnet50 needs a weights file: --weights FILE"),
        (("--backbone", "efficientnet-lite9"), "Unknown backbone 'efficientnet-lite9'. Did you mean"),
        (("--engine", "tensorflow"), "Unknown engine 'tensorflow'. There are: onnxruntime, openvino, torch."),
        (("--pool",), "--pool goes with --import"),
        (("--import", ".", "--hflip"), "do not go with --import"),
        (("--import", "nowhere"), "nowhere: there is no such folder"),
    ],
)
def test_options_that_make_no_sense_say_so(
    shapes: Path, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    assert message in ctsan("features", shapes, "--out", tmp_path / "f", *options, exit_code=2).stderr


def test_words_and_items_are_the_same_for_the_same_seed(shapes: Path, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        os.environ["PYTHONHASHSEED"] = str(len(folder) + ord(folder[0]))
        try:
            ctsan("words", shapes, "--out", tmp_path / folder / "words")
            ctsan("corpus", "items", shapes, "--split", "train", "--out", tmp_path / folder / "items")
        finally:
            del os.environ["PYTHONHASHSEED"]
    made = contents(tmp_path / "one")
    assert made == contents(tmp_path / "two")
    assert set(made) == {
        *(f"words/{name}" for name in ("vocabulary.json", "concepts.json", "embedding.safetensors")),
        *(f"items/{task}.jsonl" for task in ("fill", "choose", "rank")),
    }
    fill = [json.loads(line) for line in made["items/fill.jsonl"].decode().splitlines()]
    assert all(item["sentence"].count("_____") == 1 for item in fill)


def test_words_need_training_captions(tmp_path: Path) -> None:
    encode(tmp_path / "a.mp4", counting(10))
    assert "there are no training captions" in ctsan("words", tmp_path, exit_code=2).stderr


def test_output_can_be_cut_short_by_the_reader(shapes: Path) -> None:
    command = f"{sys.executable} -m ctsan corpus items {shapes} --split train | head -n 1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert json.loads(result.stdout)
    assert "Traceback" not in result.stderr
    assert "BrokenPipe" not in result.stderr


def test_output_that_cannot_be_written_is_one_message(shapes: Path) -> None:
    command = f"{sys.executable} -m ctsan corpus items {shapes} --split train > /dev/full"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr == (
        "The output cannot be written (No space left on device). Send it to another place.\n"
    )


def test_a_closed_stdout_is_no_error(shapes: Path) -> None:
    command = f"{sys.executable} -m ctsan corpus check {shapes} --no-video --json >&-"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [(("corpus", "check", "."), 2), (("corpus", "make", "made", "--clips", "10"), 0)],  # alone, with others
)
def test_no_module_is_imported_from_the_working_folder(
    tmp_path: Path, arguments: tuple[str, ...], exit_code: int
) -> None:
    for name in ("click", "json", "numpy", "pickle", "tqdm"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit(9)\n")
    command = [sys.executable, "-m", "ctsan", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "Traceback" not in result.stderr
    assert result.returncode == exit_code, result.stderr
    assert not (tmp_path / "ran").exists()


def test_settings_are_a_table_whose_help_is_wrapped() -> None:
    lines = ctsan("settings", "--profile", "laptop").stdout.splitlines()
    [place] = [number for number, line in enumerate(lines) if line.startswith("model.channel_dropout ")]
    assert lines[place].endswith("Share of feature channels dropped in training, the same ones")
    assert lines[place + 1].strip() == "in all frames of a clip."
    assert max(map(len, lines)) < 120


def test_a_beam_has_a_largest_width() -> None:
    asked = ctsan("describe", "any.mp4", "--beam", 100_000, exit_code=2)
    assert "1<=x<=1000" in asked.stderr
