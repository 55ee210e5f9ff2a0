"""`athena store`: the database of Responses and conversations, looked at and looked after."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from athena.errors import AthenaError
from athena.shells.cli.options import config_option, sources

if TYPE_CHECKING:
    from athena.shells.store import Store


@click.group()
def store() -> None:
    """Check, migrate and tidy up what is kept of Responses.

    A gateway keeps the responses, conversations, batches and files of its clients in an SQLite file in state_dir, or in
    the PostgreSQL database that `store.url` names. Gateways may run meanwhile.

    \b
    Examples:
      athena store check
      athena store vacuum
    """


@store.command()
@config_option
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object: {store, problems, held, bytes, batch_bytes, max_bytes}."
)
def check(config_file: str | None, as_json: bool) -> int:
    """Say whether the store can be used, and what it holds.

    The exit code is 1 where it cannot be used, is damaged, or holds what the configured key does not decrypt.

    \b
    Examples:
      athena store check
      athena store check --config gateway.yml
    """

    async def work(opened: Store) -> int:
        from athena.shells.store.batches import BatchStore
        from athena.shells.store.queries import count, get_size

        problems = await opened.database.check()
        held = await opened.read(count)
        if not problems and (unreadable := await opened.unreadable()):
            parts = ", ".join(f"{bad} of {total} {kind}" for kind, (bad, total) in unreadable.items())
            problems = [f"{parts} cannot be decrypted: set the store.encryption_key with which they were stored"]
        batch_size = await BatchStore(opened).size()
        size, limit = await opened.read(get_size), opened.limits.max_bytes
        if as_json:
            found = {
                "store": opened.database.name,
                "problems": problems,
                "held": held,
                "bytes": size,
                "batch_bytes": batch_size,
                "max_bytes": limit,
            }
            click.echo(json.dumps(found))
            return 1 if problems else 0
        click.echo(f"store: {opened.database.name}")
        for problem in problems:
            click.echo(f"problem: {problem}")
        click.echo(", ".join(f"{number} {kind}" for kind, number in held.items()))
        click.echo(f"{size / 1048576:.1f} of {limit / 1048576:.0f} MB of content")
        click.echo(f"{batch_size / 1048576:.1f} of {limit / 1048576:.0f} MB of batches and files")
        return 1 if problems else 0

    return _run(config_file, work)


@store.command()
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: {before, after}.")
def migrate(config_file: str | None, as_json: bool) -> int:
    """Bring the database into the form of this version.

    A gateway does the same by itself when it first uses the store.

    \b
    Examples:
      athena store migrate
    """

    async def work(opened: Store) -> int:
        before, after = await opened.database.migrate()
        if as_json:
            click.echo(json.dumps({"before": before, "after": after}))
            return 0
        click.echo(f"version {after}" if before == after else f"version {before} became version {after}")
        return 0

    return _run(config_file, work)


@store.command()
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: {deleted}.")
def vacuum(config_file: str | None, as_json: bool) -> int:
    """Delete what is too old or too much, and give its space back.

    \b
    Examples:
      athena store vacuum
    """

    async def work(opened: Store) -> int:
        from athena.shells.store.batches import BatchStore

        gone = await opened.trim()
        while went := await BatchStore(opened).sweep(opened.limits.max_age_s):
            gone += went
        await opened.database.vacuum()
        click.echo(json.dumps({"deleted": gone}) if as_json else f"{gone} objects deleted")
        return 0

    return _run(config_file, work)


def _run(config_file: str | None, work: Callable[[Store], Awaitable[int]]) -> int:
    from athena.shells.config import load
    from athena.shells.store import open_store

    config = load(sources({}, config_file)).config

    async def main() -> int:
        opened = open_store(config)
        if opened is None:
            raise AthenaError("nothing is kept: the configuration says store: false")
        try:
            return await work(opened)
        except AthenaError as error:
            why = error.__cause__  # what clients are told of a store that is down leaves it out
            raise (why if isinstance(why, AthenaError) else error) from None
        finally:
            await opened.close()

    return asyncio.run(main())
