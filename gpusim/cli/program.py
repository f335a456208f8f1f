"""The program: its commands, and how errors leave it.

Exit codes: 0 done, 1 a check or comparison failed, 2 wrong use or unsupported input, 3 no GPU or no counters, 130
interrupted, 141 the reader of the output went away.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from gpusim import __version__
from gpusim.cli.analyze import analyze
from gpusim.cli.calibrate import calibrate
from gpusim.cli.compare import compare
from gpusim.cli.counters import counters
from gpusim.cli.doctor import doctor
from gpusim.cli.listing import list_cases
from gpusim.cli.predict import predict
from gpusim.cli.run import run
from gpusim.cli.validate import validate
from gpusim.errors import CompileError, GpusimError

EXIT_WRONG_USE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class Program(click.Group):
    """A group whose errors are one sentence on stderr, without a traceback; unexpected ones keep theirs."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> NoReturn:
        extra["standalone_mode"] = False
        code: object = 0
        try:
            code = super().main(args, *rest, **extra)
            sys.stdout.flush()
        except GpusimError as error:
            _complain(str(error))
            if isinstance(error, CompileError) and error.log:
                click.echo(error.log, err=True)
            code = error.exit_code
        except click.ClickException as error:
            _complain(_sentence(error))
            code = EXIT_WRONG_USE
        except (click.Abort, KeyboardInterrupt):
            code = EXIT_INTERRUPTED
        except BrokenPipeError:
            # what is still buffered has nowhere to go: let the interpreter's last flush succeed
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = EXIT_BROKEN_PIPE
        sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str) -> None:
    click.echo(f"gpusim: {message}", err=True)


def _sentence(error: click.ClickException) -> str:
    """click's message, with the command that tells more."""
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{message}; see '{context.command_path} --help'" if context is not None else message


SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(cls=Program, invoke_without_command=True, context_settings=SETTINGS)
@click.version_option(__version__, prog_name="gpusim", message="%(prog)s %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """What a CUDA kernel's memory accesses cost: counted exactly, on its machine code, without a GPU."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


main.add_command(analyze)
main.add_command(predict)
main.add_command(calibrate)
main.add_command(compare)
main.add_command(run)
main.add_command(validate)
main.add_command(counters)
main.add_command(list_cases)
main.add_command(doctor)
