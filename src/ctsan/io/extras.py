"""Packages that plain use does not need: the optional dependencies of `pyproject.toml`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ctsan.errors import UsageError

# Packages that whole commands need, by the extra that brings them.
_EXTRA_OF = {"torch": "train", "onnx": "train", "onnxscript": "train", "gensim": "train", "spacy": "train"}


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Import packages of an extra inside this context.

    Args:
        name: of the extra: `train` for `ctsan[train]`.
        what: the feature that needs it, as the beginning of a message: "Training".

    Raises:
        UsageError: a package is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise _missing(_package_of(error), name, what) from error


@contextmanager
def needed_packages(what: str) -> Iterator[None]:
    """Run a whole command inside this context. Errors of imports that no extra explains are left alone.

    Raises:
        UsageError: a package of an extra is not installed.
    """
    try:
        yield
    except ImportError as error:
        package = _package_of(error)
        if package not in _EXTRA_OF:
            raise
        raise _missing(package, _EXTRA_OF[package], what) from error


def _package_of(error: ImportError) -> str:
    return (error.name or str(error)).partition(".")[0]


def _missing(package: str, name: str, what: str) -> UsageError:
    return UsageError(
        f"{what} needs packages that are not installed ({package}). Get them with: "
        f"pip install 'ctsan[{name}]'"
    )
