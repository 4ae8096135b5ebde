"""The `ctsan` command. Results go to stdout, progress and problems to stderr.

A command's module is imported only when that command runs, so that `ctsan --help` is fast.
"""

from __future__ import annotations

import atexit
import errno
import gc
import importlib
import io
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from ctsan import __version__
from ctsan.errors import CtsanError, did_you_mean
from ctsan.io.extras import needed_packages
from ctsan.io.messages import printable_lines

COMMANDS = {
    "describe": "Say what happens in video files.",
    "concepts": "List the concept words seen in video files.",
    "fill": "Fill in the blank of a sentence about a video file.",
    "choose": "Choose the sentence that suits a video file best.",
    "rank": "Rank video files for a sentence, or sentences for a video file.",
    "index": "Make or renew a library of videos and pictures.",
    "search": "Find moments in a library by a sentence or a clip.",
    "trace": "Draw where a model looks in a video file.",
    "serve": "Open a page, and an API, to do all this in.",
    "train": "Learn from a corpus.",
    "evaluate": "Measure trained models on clips that they have not seen.",
    "pack": "Put trained runs into one small folder for use.",
    "export": "Write a trained run as ONNX, to be used without this package.",
    "tables": "Train every system of the paper on a corpus and write its tables.",
    "settings": "List what can be set in a training, and to what.",
    "corpus": "Check and make corpora, and build their test items.",
    "features": "Turn a corpus' clips into stored feature maps.",
    "words": "Prepare vocabulary, concept candidates and word vectors of a corpus.",
    "vectors": "Learn word vectors from captions and a sentence transformer.",
    "cache": "Show what is kept between commands, and clear it.",
    "backbone": "List the networks that make features, look at one, and convert weights.",
}

# Commands that resume after an interruption.
_GO_ON = frozenset({"train", "features", "index", "tables"})


_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # of writing to stdout


def _print_error(text: str) -> None:
    click.echo(printable_lines(text), err=True)


class _Echo(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        _print_error(record.getMessage())


@contextmanager
def _messages_on_stderr() -> Iterator[None]:
    """Print the package's log records on stderr while a command runs."""
    logger, handler = logging.getLogger("ctsan"), _Echo()
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class LazyGroup(click.Group):
    """A group that lists its commands with their short helps without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"ctsan.cli.{cmd_name}").command
        assert isinstance(command, click.Command)  # every module of cli/ defines one
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            hint = did_you_mean(args[0], COMMANDS)
            raise click.UsageError(f"No such command '{args[0]}'. {hint}'ctsan --help' lists them.", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            # Arguments are parsed here too, and the tasks of `ctsan train` are known to PyTorch's side only.
            with _messages_on_stderr(), needed_packages("This command"):
                return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo(err=True)  # the terminal has written ^C
            hint = " What is done is kept: the same command goes on from there."
            raise click.Abort(f"Stopped.{hint if ctx.invoked_subcommand in _GO_ON else ''}") from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="ctsan")
def group() -> None:
    """Teach a machine to describe, search and question your own videos.

    Everything runs on this machine; nothing is sent anywhere.
    """


def main() -> None:
    """Run the command. Errors that the user can fix print a message, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for file names in another encoding
    os.environ["PYTHONSAFEPATH"] = "1"  # nor do processes of ours import modules from the working folder
    # Imported modules live until exit. Scanning them for garbage repeatedly would take half a second.
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)
    try:
        code = group.main(prog_name="ctsan", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        error.show(shown := io.StringIO())
        _print_error(shown.getvalue().rstrip("\n"))
        sys.exit(error.exit_code)
    except click.Abort as stop:  # Ctrl-C
        _print_error(str(stop) or "Stopped.")
        sys.exit(130)
    except CtsanError as error:
        _print_error(str(error))
        sys.exit(error.exit_code)
    except BrokenPipeError:  # the reader of stdout has exited, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.filename is None and error.errno in _OUTPUT_ERRORS:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            _print_error(f"The output cannot be written ({error.strerror}). Send it to another place.")
            sys.exit(1)
        if error.filename is None:
            raise
        _print_error(f"{error.filename}: {error.strerror}. Name another place, or change permissions.")
        sys.exit(2)
