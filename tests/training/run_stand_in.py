"""Train the stand-in in a process of its own: FOLDER [SETTING=VALUE ...].

`kills=SEED` trains twice, below FOLDER: in `undisturbed`, and in `killed`, where the training is killed again
and again until it gets to the end; the number of kills is printed.
"""

from __future__ import annotations

import importlib
import os
import random
import signal
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import torch

from ctsan.config import load_settings
from ctsan.training.loop import train_loop
from training.stand_in import StandIn


def run(folder: Path, overrides: list[str], task: StandIn) -> None:
    settings = load_settings("laptop", overrides)
    train_loop(task, folder, optimiser=settings.optimiser, training=settings.training)


def start(folder: Path, overrides: list[str]) -> int:
    """The id of a new process that trains."""
    child = os.fork()
    if child == 0:
        run(folder, overrides, StandIn(seconds=0.004))
        os._exit(0)
    return child


def kill_until_it_ends(folder: Path, overrides: list[str], seed: int) -> int:
    # Seconds of imports, here instead of in each child.
    torch.optim.AdamW([torch.zeros(1)])
    if find_spec("tensorboard"):
        importlib.import_module("torch.utils.tensorboard")
    draw, kills = random.Random(seed), 0
    while True:
        child = start(folder, overrides)
        time.sleep(draw.uniform(0.02, 0.4))
        os.kill(child, signal.SIGKILL)
        if os.waitpid(child, 0)[1] == 0:
            return kills
        kills += 1


if __name__ == "__main__":
    folder, *arguments = sys.argv[1:]
    given = dict(argument.split("=") for argument in arguments)
    seed, dropout, examples = given.pop("kills", ""), given.pop("dropout", "0.3"), given.pop("examples", "21")
    overrides = [f"{name}={value}" for name, value in given.items()]
    if seed:
        print(kill_until_it_ends(Path(folder, "killed"), overrides, int(seed)))
        run(Path(folder, "undisturbed"), overrides, StandIn())
    else:
        run(Path(folder), overrides, StandIn(dropout=float(dropout), num_examples=int(examples)))
