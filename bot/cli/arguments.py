"""What commands take, said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", help="Configuration file; see config/confidant.toml.", dir_okay=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="For machines: one JSON value.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Words = Annotated[list[str], typer.Argument(help="The words.")]
NotesFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder.", file_okay=False)]
PassphraseFile = Annotated[
    Path | None,
    typer.Option("--passphrase-file", help="A file with the passphrase.", dir_okay=False),
]
ChannelArgument = Annotated[str, typer.Argument(metavar="CHANNEL", help="Such as telegram.")]
SenderArgument = Annotated[
    str, typer.Argument(metavar="SENDER", help="Their id there; `pairing list` shows it.")
]
PersonArgument = Annotated[
    str,
    typer.Argument(metavar="PERSON", help='Such as telegram:42, a linked name, or "owner".'),
]
ExportFile = Annotated[
    Path, typer.Argument(metavar="ZIP", help="The file of the data export, as it came.")
]
PersonOption = Annotated[
    str, typer.Option("--as", metavar="PERSON", help="Whose they are: telegram:42, a linked name.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Show no progress, only what came of it.")
]
