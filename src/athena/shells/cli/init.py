"""`athena init`: a few questions, and an athena.yml that works comes of them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from athena.errors import AthenaError
from athena.shells.cli.completing import complete_agents, complete_providers

if TYPE_CHECKING:
    from athena.shells.config import OfferedModel
    from athena.shells.doctor import CheckStep
    from athena.shells.setup import Answers, KeyPlace, LocalOffer, Provider

_SHOWN = 12
"""Models that are listed before a part of a name is asked for."""
_OWN = "another address"
_DOCTOR_SECONDS = 30.0


@click.command()
@click.option(
    "--upstream",
    metavar="NAME",
    shell_complete=complete_providers,
    help="A provider of the list, or the address of a server (http://...).",
)
@click.option("--model", metavar="NAME", help='The model; "": names pass through as clients send them.')
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds the provider's key.")
@click.option("--api-key-file", metavar="FILE", help="File that holds the key; it is made if a key is typed in.")
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_agents,
    help='The agent to run: claude, codex, gemini, opencode...; "": none.',
)
@click.option(
    "--file", "-o", "path", type=click.Path(path_type=Path, dir_okay=False),
    help="Where to write.  [default: ~/.config/athena/athena.yml]",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace a file that is there; it is kept with the ending .bak.")
@click.option("--yes", "-y", is_flag=True, help="Ask nothing: take flags, and defaults for what they leave out.")
@click.option("--list", "listing", is_flag=True, help="List the providers, and which servers run on this machine.")
@click.option(
    "--json", "as_json", is_flag=True, help="Ask nothing, as with --yes, and print one JSON object; with --list a list."
)
@click.option("--no-check", is_flag=True, help="Do not try the upstream.")
def init(
    upstream: str | None,
    model: str | None,
    api_key_env: str | None,
    api_key_file: str | None,
    agent: str | None,
    path: Path | None,
    force: bool,
    yes: bool,
    listing: bool,
    as_json: bool,
    no_check: bool,
) -> int:
    """Set up your own model and agent.

    Asks which provider or local server to use, where its key is kept (it is never shown, and never written into athena.yml),
    which of its models, and which agent; writes a commented athena.yml, lets athena doctor try it, and starts. Without a
    terminal, or with --yes, flags answer the questions, nothing is asked of the model that could cost money, and the command to
    start is only said. Exit code 1: the file is written, and the upstream does not work yet.

    \b
    Examples:
      athena init
      athena init --list
      athena init --yes --upstream ollama --model qwen3-coder:30b --agent claude
      athena init --yes --upstream openrouter --api-key-env OPENROUTER_API_KEY --model z-ai/glm-4.6
      athena init --yes --upstream http://127.0.0.1:8000/v1 --model= -o athena.yml
      athena init --json --upstream ollama | jq .start
    """
    from athena.shells.config import Window
    from athena.shells.setup import Answers, configuration_text, find_local

    if listing:
        _list(find_local(), as_json=as_json)
        return 0
    asks = not yes and not as_json and sys.stdin.isatty()
    if not asks and upstream is None:
        flag = "--yes" if yes else "--json" if as_json else ""
        why = f"{flag} asks nothing" if flag else "this is not a terminal, so nothing can be asked"
        raise click.UsageError(f"{why}: name the provider (--upstream NAME; athena init --list shows them)")
    provider = _chosen_provider(upstream, api_key_env)
    _check_agent(agent)
    target = path or _default_file()
    if target.exists() and not force and not (asks and _may_replace(target)):
        raise AthenaError(f"{target} is there already; --force replaces it and keeps the old one as {target.name}.bak")
    place, name, key = _chosen_key(provider, api_key_env, api_key_file, asks, target)
    offered = () if no_check else _offered(provider, key)
    chosen = _chosen_model(provider, model, offered, asks)
    runner = _chosen_agent(agent, asks)
    window = next((one.window for one in offered if one.id == chosen), Window())
    answers = Answers(provider=provider, model=chosen, window=window, key_place=place, key_name=name, agent=runner)
    _write(target, configuration_text(answers))
    return _finish(target, answers, asks=asks, checks=not no_check, as_json=as_json)


def _may_replace(target: Path) -> bool:
    return click.confirm(f"{target} is there already. Replace it (the old one is kept as {target.name}.bak)?")


def _default_file() -> Path:
    from athena.shells.config import Sources

    return Sources.here({}, None).own_directories[0] / "athena.yml"


# -- which server ----------------------------------------------------------------------------------------------------------


def _list(offers: tuple[LocalOffer, ...], *, as_json: bool) -> None:
    if as_json:
        import msgspec

        rows = [
            {"id": offer.provider.id, "base_url": offer.provider.base_url, "key_env": offer.provider.key_env or None,
             "key_is_set": bool(os.environ.get(offer.provider.key_env or "-")), "local": offer.provider.is_local,
             "listens": offer.listens}
            for offer in offers
        ]  # fmt: skip
        click.echo(msgspec.json.encode(rows).decode())
        return
    from rich.table import Table

    from athena.shells.cli.terminal import console

    table = Table(box=None, pad_edge=False)
    for column in ("provider", "address", "key", ""):
        table.add_column(column, overflow="fold")
    for offer in offers:
        row = offer.provider
        state = "found" if offer.listens else "not running here" if row.is_local else ""
        key = f"{row.key_env}{' (set)' if os.environ.get(row.key_env) else ''}" if row.key_env else "none"
        table.add_row(row.id, row.base_url, key, state)
    console().print(table)


def _chosen_provider(wanted: str | None, key_env: str | None) -> Provider:
    from athena.shells.setup import find_local, known_providers, own_provider

    if wanted is not None:
        row = next((row for row in known_providers() if wanted.lower() in (row.id, row.title.lower())), None)
        if row is not None:
            return row
        if "://" in wanted:
            return own_provider(wanted, key_env or "")
        from difflib import get_close_matches

        near = get_close_matches(wanted, [row.id for row in known_providers()], 1)
        hint = f"did you mean {near[0]}?" if near else "athena init --list shows them, or give its address (http://...)"
        raise AthenaError(f"there is no provider {wanted!r}: {hint}")
    offers = sorted(find_local(), key=lambda offer: not (offer.listens or os.environ.get(offer.provider.key_env or "-")))
    labels = [_label(offer) for offer in offers] + [_OWN]
    number = _choice("Where does the model run?", labels, 1)
    if number < len(offers):
        return offers[number].provider
    while True:
        try:
            return own_provider(click.prompt("Its address, such as http://127.0.0.1:8000/v1"))
        except AthenaError as error:
            click.echo(error.message)


def _label(offer: LocalOffer) -> str:
    row = offer.provider
    if row.is_local:
        return f"{row.title} on this machine ({'found' if offer.listens else 'not running'}, port {row.port})"
    return f"{row.title}{f' ({row.key_env} is set)' if os.environ.get(row.key_env) else ''}"


# -- its key ---------------------------------------------------------------------------------------------------------------


def _chosen_key(
    provider: Provider, variable: str | None, file: str | None, asks: bool, target: Path
) -> tuple[KeyPlace, str, str]:
    """Where the key is kept, the name of that place, and the key itself if it is known."""
    from athena.shells.setup import KeyPlace

    if file is not None:
        return KeyPlace.FILE, str(_absolute(file)), _key_in(_absolute(file), asks)
    if variable is not None:
        return KeyPlace.ENVIRONMENT, variable, os.environ.get(variable, "")
    name = provider.key_env
    if not name and not (asks and not provider.is_local and click.confirm("Does it ask for a key?", default=False)):
        return KeyPlace.NONE, "", ""
    if name and (os.environ.get(name) or not asks):
        return KeyPlace.ENVIRONMENT, name, os.environ.get(name, "")
    kept = target.parent / "keys" / provider.id
    options = [f"in {shown_path(kept)}, a file that only you can read", "in an environment variable that I set myself"]
    if _choice(f"Where should the key of {provider.title} be kept?", options, 1) == 0:
        return KeyPlace.FILE, str(kept), _key_in(kept, asks)
    name = click.prompt("Name of the variable", default=name or "UPSTREAM_API_KEY")
    return KeyPlace.ENVIRONMENT, name, os.environ.get(name, "")


def shown_path(path: Path) -> str:
    """A path as people write it, with ~ for their home."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) and home != Path("/") else str(path)


def _absolute(name: str) -> Path:
    return Path(os.path.abspath(Path(name).expanduser()))


def _key_in(file: Path, asks: bool) -> str:
    """The key in a file; typed in, unseen, where the file is missing."""
    from athena.shells.own_files import own_directory

    if file.exists() and (not asks or click.confirm(f"Use the key that is in {shown_path(file)}?", default=True)):
        return file.read_text("utf-8").strip()
    if not asks:
        raise AthenaError(f"{file} is missing: put the key into it first (and chmod 600 it)")
    key: str = click.prompt("The key (it is not shown)", hide_input=True).strip()
    own_directory(file.parent)
    file.unlink(missing_ok=True)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w", encoding="utf-8") as out:
        out.write(key + "\n")
    click.echo(f"The key is in {shown_path(file)}.")
    return key


# -- its model -------------------------------------------------------------------------------------------------------------


def _offered(provider: Provider, key: str) -> tuple[OfferedModel, ...]:
    from athena.shells.setup import ask_models

    try:
        return ask_models(provider, key)
    except AthenaError as error:
        click.echo(f"athena: warning: {error.message}", err=True)
        return ()


def _chosen_model(provider: Provider, wanted: str | None, offered: tuple[OfferedModel, ...], asks: bool) -> str:
    names = [one.id for one in offered]
    if wanted is not None:
        if wanted and names and wanted not in names:
            from difflib import get_close_matches

            near = get_close_matches(wanted, names, 3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            click.echo(f"athena: warning: {provider.title} does not list the model {wanted!r}{hint}", err=True)
        return wanted
    default = provider.model if provider.model in names or not names else ""
    default = default or (names[0] if len(names) == 1 else "")
    if not asks:
        return default
    shown = list(offered)
    while True:
        if shown:
            click.echo("Which model?")
        for place, one in enumerate(shown[:_SHOWN], 1):
            window = f"{one.window.context:>12,} tokens" if one.window.context else ""
            click.echo(f"  {place:>2}  {one.id:<48}{window}".rstrip())
        if len(shown) > _SHOWN:
            click.echo(f"  ... and {len(shown) - _SHOWN} more; type a part of a name to see fewer")
        question = "Number, or name" if shown else "Name of the model"
        answer: str = click.prompt(question, default=default or None).strip()
        if answer in names or not names:
            return answer
        if answer.isdecimal() and 1 <= int(answer) <= min(len(shown), _SHOWN):
            return shown[int(answer) - 1].id
        found = [one for one in offered if answer.lower() in one.id.lower()]
        if len(found) == 1:
            return found[0].id
        if not found and click.confirm(f"{provider.title} does not list {answer!r}. Use it all the same?", default=False):
            return answer
        shown = found or list(offered)


# -- the agent, and the end ------------------------------------------------------------------------------------------------


def _check_agent(wanted: str | None) -> None:
    """A name that is wrong is said before anything is asked or written."""
    from athena.shells.agents import AGENTS
    from athena.shells.cli.code import no_agent

    if wanted and wanted not in AGENTS:
        raise AthenaError(no_agent(wanted))


def _chosen_agent(wanted: str | None, asks: bool) -> str:
    from athena.shells.agents import AGENTS

    if wanted:
        return wanted
    installed = [agent for agent in AGENTS.values() if any(map(shutil.which, agent.executables))]
    if wanted is not None or not asks or not installed:
        return ""
    number = _choice("Which agent will you run?", [*(agent.title for agent in installed), "none of them, or an SDK"], 1)
    return installed[number].name if number < len(installed) else ""


def _choice(question: str, options: list[str], default: int) -> int:
    click.echo(question)
    for place, option in enumerate(options, 1):
        click.echo(f"  {place:>2}  {option}")
    number: int = click.prompt("Number", type=click.IntRange(1, len(options)), default=default)
    return number - 1


def _write(target: Path, text: str) -> None:
    from athena.shells.cli.trust import trust_own

    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if target.exists():
            target.replace(target.with_name(target.name + ".bak"))
        with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as out:
            out.write(text.encode())
    except OSError as error:
        raise AthenaError(f"{target} cannot be written: {error.strerror or error}") from None
    trust_own(target, text.encode())


def _finish(target: Path, answers: Answers, *, asks: bool, checks: bool, as_json: bool) -> int:
    """Check what was written, say what comes next, and start it where the person wants that."""
    from athena.shells.config import Sources, load
    from athena.shells.setup import KeyPlace

    def say(words: str) -> None:
        if not as_json:
            click.echo(words)

    say(f"Wrote {target}")
    missing = answers.key_place is KeyPlace.ENVIRONMENT and not os.environ.get(answers.key_name)
    if missing:
        say(f"Set the key first: export {answers.key_name}=...")
        checks = False
    else:
        load(Sources.here({}, target))
    steps: list[CheckStep] = _examined(target, free=not asks, shows=not as_json) if checks else []
    works = not any(step.state.value == "failed" for step in steps)
    named = ["--config", str(target)] if target != _default_file() else []
    start = ["code", *named, answers.agent] if answers.agent else ["serve", *named]
    command = " ".join(["athena", *start])
    if checks and asks and click.confirm(f"Start now ({command})?", default=works):
        os.execv(sys.executable, [sys.executable, "-m", "athena", *start])
    say(f"Start with: {command}")
    if not answers.agent:
        say("Then point your client at http://127.0.0.1:12377")
        say("(OpenAI's SDKs: http://127.0.0.1:12377/v1)")
    if as_json:
        import msgspec

        done = {"file": str(target), "upstream": answers.provider.id, "model": answers.model, "agent": answers.agent or None,
                "missing_key": answers.key_name if missing else None, "works": works if checks else None,
                "steps": steps, "start": command}  # fmt: skip
        click.echo(msgspec.json.encode(done).decode())
    return 0 if works else 1


def _examined(target: Path, *, free: bool, shows: bool) -> list[CheckStep]:
    """Let the doctor try the upstream that was set up, and show its steps. `free`: without anything that could cost money.

    What stands in the gateway's own way, such as its port, is no matter yet.
    """
    import asyncio

    from athena.shells.cli.doctor import show_step
    from athena.shells.config import Sources
    from athena.shells.doctor import CheckWish, check_up

    async def run() -> list[CheckStep]:
        steps: list[CheckStep] = []
        async for step in check_up(Sources.here({}, target), CheckWish(seconds=_DOCTOR_SECONDS, free=free)):
            if step.upstream:
                steps.append(step)
                if shows:
                    show_step(step, verbose=False, as_json=False)
        return steps

    return asyncio.run(run())
