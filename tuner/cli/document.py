"""The option `--json`: a command prints one JSON document for scripts instead of text for people."""

import json
from typing import Annotated, Any

import typer
from pydantic_core import to_jsonable_python

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document for scripts; other text goes to stderr.")]


def plain(value: object) -> Any:
    """Return a value, its dataclasses, paths and enums as values of JSON; infinity and NaN become None."""
    return to_jsonable_python(value, inf_nan_mode="null")


def print_document(document: object) -> None:
    """Print a document, in ASCII: every encoding of stdout has those characters."""
    typer.echo(json.dumps(plain(document), indent=2))
