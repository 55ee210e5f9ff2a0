"""`athena verify`: what an upstream and a model really do with tool calls, measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from athena.errors import AthenaError
from athena.shells.cli.completing import complete_targets
from athena.shells.cli.names import DIALECTS
from athena.shells.cli.options import sources, tell_ignored

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from athena.shells.config import Config, Loaded
    from athena.shells.verify import Subject
    from athena.verify.cases import VerifyCase
    from athena.verify.planning import Planner
    from athena.verify.profiling import Proposal
    from athena.verify.runs import RunHead, VerifyRun, VerifyTrial
    from athena.verify.statistics import Bar
    from athena.verify.vendors import VendorFigures, VendorResult
    from athena.verify.verdicts import Compared, VerifyReport

_FAILURES_SHOWN = 10
_STYLES = {"passed": "green", "failed": "bold red", "undecided": "yellow", "not seen": "dim"}


@click.command()
@click.argument("target", required=False, metavar="[UPSTREAM/MODEL]", shell_complete=complete_targets)
@click.option("--config", "config_file", metavar="FILE", help="Read only this file; left out: athena.yml is searched.")
@click.option("--base-url", metavar="URL", help="Ask this server instead of a configured upstream.")
@click.option("--api-key-env", metavar="NAME", help="Environment variable that holds its key.")
@click.option("--dialect", type=click.Choice(DIALECTS), help="API of that server. [by its address, else openai_chat]")
@click.option("--model", metavar="NAME", help="Model to ask, with --base-url. [the first that the server lists]")
@click.option(
    "--battery", "batteries", type=click.Choice(("wire", "engineering", "behaviour")), multiple=True, help="Only these. [all]"
)
@click.option("--cases", "case_files", multiple=True, metavar="FILE", help="JSONL of K2VV, MiniMax, BFCL or walle, as it is.")
@click.option("--answers", metavar="FILE", help="BFCL's file of possible answers, for --cases.")
@click.option("--only-cases", is_flag=True, help="Leave our own battery out.")
@click.option(
    "--budget",
    default="200",
    show_default=True,
    metavar="LIMIT",
    help="Requests, tokens or money at most: 300, '200k tokens', '2.50 usd'.",
)
@click.option("--price", nargs=2, type=float, metavar="IN OUT", help="Money for a million tokens, for estimate and budget.")
@click.option("--bar", "bars", multiple=True, metavar="METRIC=GOOD[:BAD]", help="Another bar, such as schema=0.98:0.9.")
@click.option("--judge", type=click.Choice(("raw", "through")), default="raw", show_default=True, help="Side that decides.")
@click.option("--reference", metavar="RUN|UPSTREAM/MODEL", help="Compare with a saved run, or with another upstream, live.")
@click.option("--fail-if-worse", is_flag=True, help="Exit code 1 where a metric is worse than the reference, beyond chance.")
@click.option("--concurrency", type=click.IntRange(1, 64), default=4, show_default=True, help="Requests at the same time.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another order of the cases.")
@click.option("--run", "run_file", metavar="FILE", help="File of the run; one that is there is resumed. [in state_dir/verify]")
@click.option("--report", "report_only", metavar="RUN", help="Ask nothing: report a saved run.")
@click.option("--json", "json_file", metavar="FILE", help="Write the report as JSON; - is standard output.")
@click.option("--junit", "junit_file", metavar="FILE", help="Write it for CI.")
@click.option("--markdown", "markdown_file", metavar="FILE", help="Write it as Markdown, with a badge.")
@click.option(
    "--html", "html_file", metavar="FILE", help="Write it as one HTML page with plots, and failing exchanges in a second one."
)
@click.option("--write-profile", is_flag=True, help="Propose settings from the evidence and write them into athena.yml.")
@click.option("--yes", is_flag=True, help="Begin, and write the profile, without asking.")
@click.option("--no-record", is_flag=True, help="Do not keep failing exchanges for athena record.")
def verify(target: str | None, config_file: str | None, **options: Any) -> int:
    """Measure what an upstream and a model really do with tool calls.

    Puts cases to the upstream over the real wire and gives three verdicts: wire (does it keep to its API), engineering (do
    calls arrive whole, named and as JSON that fits) and behaviour (does the model decide well). Each answer is judged as the
    upstream sent it and as a client of Athena gets it. The run stops as soon as enough is known, or at --budget. Failing
    exchanges are kept: athena record show ID shows one, and the page of --html links to each of them.

    Exit code 0: passed. 1: failed. 3: undecided, the budget was too small. 2: wrong usage. A reference is shown beside the
    run; it decides the exit code with --fail-if-worse.

    \b
    Examples:
      athena verify openrouter/moonshotai/kimi-k2-0905
      athena verify --base-url http://127.0.0.1:8000/v1 --html report.html
      athena verify local/qwen3 --reference openrouter/qwen/qwen3-32b --budget '2 usd' --price 0.2 0.6
      athena verify --report ~/.athena/verify/last.jsonl --junit verify.xml
      athena verify local/qwen3 --write-profile
    """
    with _without_lines():
        return _Command(target, config_file, options).run()


@contextmanager
def _without_lines() -> Iterator[None]:
    """Lines about single requests belong to a gateway; what is wrong with them is what the report says."""
    import logging

    log, silent = logging.getLogger("athena"), logging.NullHandler()
    propagated, log.propagate = log.propagate, False
    log.addHandler(silent)
    try:
        yield
    finally:
        log.removeHandler(silent)
        log.propagate = propagated


class _Planned(NamedTuple):
    """A run that is about to begin."""

    subject: Subject
    head: RunHead
    planner: Planner
    file: Path


class _Command:
    def __init__(self, target: str | None, config_file: str | None, options: Mapping[str, Any]) -> None:
        self._target = target
        self._config_file = config_file
        self._options = options
        self._loaded: Loaded | None = None

    def run(self) -> int:
        options = self._options
        cases = self._cases()
        # Read before anything is asked: a run of ours may take its name.
        reference = options["reference"]
        saved, official = self._saved(reference) if reference and Path(reference).is_file() else (None, ())
        live = reference if reference and saved is None and not official else None
        if options["report_only"]:
            run, other = _read(options["report_only"]), self._measured(cases, (live,))[0] if live else saved
        else:
            run, *others = self._measured(cases, (self._target, live) if live else (self._target,))
            other = others[0] if others else saved
        report = self._report(run, cases)
        compared = self._compared(report, cases, other)
        self._write(report, compared, self._figures(run, cases, other, official))
        if options["write_profile"]:
            self._write_profile(report)
        worse = [row.name for row in compared if row.says == "worse"]
        if worse and options["fail_if_worse"]:
            click.echo(f"worse than the reference: {', '.join(worse)}", err=True)
            return 1
        return {"passed": 0, "failed": 1, "undecided": 3, "not seen": 3}[report.verdict.value]

    def _saved(self, name: str) -> tuple[VerifyRun | None, tuple[VendorResult, ...]]:
        """A reference from a file: a run of ours, or results of K2-Vendor-Verifier."""
        from athena.errors import InvalidRequest
        from athena.verify.vendors import read_results

        try:
            return _read(name), ()
        except InvalidRequest as first:
            try:
                return None, read_results(_text_of(name))
            except InvalidRequest:
                raise first from None

    def _figures(
        self, run: VerifyRun, cases: tuple[VerifyCase, ...], other: VerifyRun | None, official: tuple[VendorResult, ...]
    ) -> VendorFigures | None:
        """K2VV's two figures, where its cases were asked."""
        from athena.verify.vendors import results_of, vendor_figures

        results = results_of(run, cases)
        if not results:
            return None
        return vendor_figures(results, official or (results_of(other, cases) if other is not None else ()))

    # -- what is asked -------------------------------------------------------------------------------------------------------

    def _cases(self) -> tuple[VerifyCase, ...]:
        from athena.verify.cases import shipped_cases
        from athena.verify.importers import read_cases

        options = self._options
        answers = _text_of(options["answers"]) if options["answers"] else ""
        own = () if options["only_cases"] else shipped_cases()
        imported = [case for name in options["case_files"] for case in read_cases(_text_of(name), answers=answers)]
        wanted = options["batteries"]
        found = {case.id: case for case in (*own, *imported) if not wanted or case.battery in wanted}
        if not found:
            raise click.UsageError("there are no cases: --only-cases needs --cases FILE")
        return tuple(found.values())

    def _bars(self) -> dict[str, Bar]:
        from athena.verify.metrics import METRICS
        from athena.verify.statistics import Bar

        found: dict[str, Bar] = {}
        for text in self._options["bars"]:
            name, _, numbers = text.partition("=")
            good, _, bad = numbers.partition(":")
            try:
                bar = Bar(float(good), float(bad) if bad else max(0.01, float(good) - 0.04))
            except ValueError:
                bar = Bar(0, 0)
            if name not in METRICS or not 0 < bar.bad < bar.good < 1:
                raise click.UsageError(
                    f"--bar {text}: write METRIC=GOOD:BAD with 0 < BAD < GOOD < 1; metrics: {', '.join(METRICS)}"
                )
            found[name] = bar
        return found

    def _subject(self, target: str | None) -> Subject:
        from athena.shells.verify import Subject

        options = self._options
        flags = {"base_url": options["base_url"], "api_key_env": options["api_key_env"], "dialect": options["dialect"]}
        loaded = self._load({key: value for key, value in flags.items() if value is not None})
        config = loaded.config
        if not config.upstreams:
            raise AthenaError("no upstream is configured\n  athena verify --base-url URL --api-key-env NAME")
        if options["base_url"] and target is None:
            return Subject(config, "default", options["model"] or self._first_model(config, "default"))
        if target is None:
            raise click.UsageError("say what to verify: UPSTREAM/MODEL, or --base-url URL")
        upstream, _, model = target.partition("/")
        if upstream not in config.upstreams:
            names = ", ".join(config.upstreams)
            raise AthenaError(f"there is no upstream {upstream!r}; configured: {names}")
        return Subject(config, upstream, model or options["model"] or self._first_model(config, upstream))

    def _load(self, flags: dict[str, Any]) -> Loaded:
        from athena.shells.config import load

        if self._loaded is None:
            self._loaded = load(sources(flags, self._config_file))
            tell_ignored(self._loaded)
        return self._loaded

    def _first_model(self, config: Config, upstream: str) -> str:
        offered = _offered(config, upstream)
        if not offered:
            raise AthenaError(f"{upstream} lists no models: name one with --model\n  what is wrong: athena doctor")
        return next(iter(offered))

    # -- asking --------------------------------------------------------------------------------------------------------------

    def _measured(self, cases: tuple[VerifyCase, ...], targets: tuple[str | None, ...]) -> tuple[VerifyRun, ...]:
        """The runs of these targets, one after the other; what all of them take is said before the first request."""
        import asyncio

        from athena.verify.runs import VerifyRun

        planned = [self._plan(target, cases, is_reference=number > 0) for number, target in enumerate(targets)]
        self._tell_estimate([one.planner for one in planned])
        runs = []
        for one in planned:
            with one.file.open("ab", buffering=0) as lines:
                asyncio.run(self._ask(one.subject, one.planner, lines.write))
            click.echo(f"the run of {one.subject.upstream}/{one.subject.model} is in {one.file}", err=True)
            runs.append(VerifyRun(one.head, tuple(one.planner.tally.trials)))
        if self._options["run_file"] is None:
            last = planned[0].file.parent / "last.jsonl"
            last.unlink(missing_ok=True)
            last.symlink_to(planned[0].file.name)
        return tuple(runs)

    def _plan(self, target: str | None, cases: tuple[VerifyCase, ...], *, is_reference: bool) -> _Planned:
        from athena.verify.runs import line_of, read_run

        subject = self._subject(target)
        head = self._head(subject, cases)
        planner = self._planner(cases, head)
        file = self._run_file(subject, is_reference=is_reference)
        if file.exists() and file.stat().st_size:
            before = read_run(file.read_bytes())
            if (before.head.base_url, before.head.model, before.head.battery) != (head.base_url, head.model, head.battery):
                raise AthenaError(f"{file} is a run of another upstream, model or battery; name another with --run")
            head = before.head
            planner.resume(before.trials)
            click.echo(f"resumed: {len(before.trials)} answers are in {file} already", err=True)
        else:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file.write_bytes(line_of(head))
        return _Planned(subject, head, planner, file)

    def _planner(self, cases: tuple[VerifyCase, ...], head: RunHead) -> Planner:
        from athena.verify.planning import Planner, read_budget

        options = self._options
        budget = read_budget(options["budget"])
        if budget.money and not options["price"]:
            raise click.UsageError("a budget of money needs --price IN OUT")
        return Planner(
            cases,
            seed=options["seed"],
            bars=self._bars(),
            judged=options["judge"],
            budget=budget,
            price_in=head.price_in,
            price_out=head.price_out,
        )

    def _head(self, subject: Subject, cases: tuple[VerifyCase, ...]) -> RunHead:
        import time

        from athena import __version__
        from athena.shells.config import Router
        from athena.verify.runs import RunHead, battery_digest

        upstream = subject.config.upstreams[subject.upstream]
        route = Router(subject.gateway_config()).resolve("verified")[0]
        window = _offered(subject.config, subject.upstream).get(subject.model, (0, 0))
        price = self._options["price"] or [0.0, 0.0]
        return RunHead(
            athena=__version__,
            upstream=subject.upstream,
            model=subject.model,
            dialect=upstream.dialect,
            base_url=upstream.base_url,
            profile=upstream.profile or "",
            format=route.format,
            tools=route.rule.tools,
            started=time.strftime("%Y-%m-%d %H:%M:%S"),
            seed=self._options["seed"],
            battery=battery_digest(cases),
            price_in=price[0],
            price_out=price[1],
            window=window,
        )

    def _run_file(self, subject: Subject, *, is_reference: bool) -> Path:
        """Where a run is kept; a reference that is asked live stands beside the run that it is for."""
        import time

        if self._options["run_file"] is not None:
            file = Path(self._options["run_file"])
            return file.with_suffix(f".reference{file.suffix}") if is_reference else file
        folder = Path(subject.config.state_dir).expanduser() / "verify"
        name = "".join(letter if letter.isalnum() else "-" for letter in f"{subject.upstream}-{subject.model}")
        return folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{name[:80]}.jsonl"

    def _tell_estimate(self, planners: list[Planner]) -> None:
        import sys

        estimates = [planner.estimate() for planner in planners]
        least, requests, tokens_in, tokens_out = (
            sum(getattr(one, name) for one in estimates) for name in ("least", "requests", "input_tokens", "output_tokens")
        )
        spent = sum(one.money for one in estimates)
        money = f", {spent:,.2f} in money" if spent else ""
        both = " for both upstreams" if len(planners) > 1 else ""
        click.echo(
            f"at least {least} requests, at most about {requests}{both}: {tokens_in:,} tokens in, {tokens_out:,} out{money}",
            err=True,
        )
        if spent and not self._options["yes"] and sys.stdin.isatty():
            click.confirm("Begin?", abort=True, err=True)

    async def _ask(self, subject: Subject, planner: Planner, write: Any) -> None:
        import sys

        from athena.shells.verify import Verifier
        from athena.verify.runs import line_of

        keeper = None if self._options["no_record"] else Verifier.keeper(subject.config)
        async with Verifier(subject, keeper=keeper) as verifier:
            if not sys.stderr.isatty():
                await verifier.run(planner, concurrency=self._options["concurrency"], told=lambda one: write(line_of(one)))
                return
            with _Progress(planner) as progress:

                def told(trial: VerifyTrial) -> None:
                    write(line_of(trial))
                    progress.update()

                await verifier.run(planner, concurrency=self._options["concurrency"], told=told)

    # -- saying --------------------------------------------------------------------------------------------------------------

    def _report(self, run: VerifyRun, cases: Iterable[VerifyCase]) -> VerifyReport:
        from athena.verify.verdicts import report_of

        return report_of(run, cases, bars=self._bars(), judged=self._options["judge"])

    def _compared(self, report: VerifyReport, cases: tuple[VerifyCase, ...], other: VerifyRun | None) -> tuple[Compared, ...]:
        from athena.verify.verdicts import compare

        return compare(report, self._report(other, cases)) if other is not None else ()

    def _write(self, report: VerifyReport, compared: tuple[Compared, ...], figures: VendorFigures | None) -> None:
        from athena.verify import reports
        from athena.verify.pages import as_page

        options = self._options
        links: dict[str, str] = {}
        if options["html_file"]:
            links = self._write_exchanges(report, Path(options["html_file"]))
        made: dict[str, Callable[[], str]] = {
            "json_file": lambda: reports.as_json(report, compared, figures),
            "junit_file": lambda: reports.as_junit(report),
            "markdown_file": lambda: reports.as_markdown(report, compared),
            "html_file": lambda: as_page(report, compared, links),
        }
        for name, make in made.items():
            if options[name] and options[name] != "-":
                Path(options[name]).write_text(make(), encoding="utf-8")
                click.echo(f"the report is in {options[name]}", err=True)
        if options["json_file"] == "-":
            click.echo(reports.as_json(report, compared, figures), nl=False)
        else:
            _show(report, compared, {name: self._beside_page(link) for name, link in links.items()})
            if figures is not None:
                against = (
                    f", tool_call_f1 {figures.tool_call_f1:.4f} of {figures.compared} compared" if figures.compared else ""
                )
                click.echo(f"K2VV: schema_accuracy {figures.schema_accuracy:.4f}{against}")

    def _write_exchanges(self, report: VerifyReport, page: Path) -> dict[str, str]:
        """The failing exchanges, in a file beside the HTML page: its links to them."""
        from athena.shells.verify.exchange_page import write_exchanges
        from athena.verify.pages import MOST_FAILURES

        file = page.with_suffix(".exchanges.html")
        return write_exchanges(self._load({}).config, report.failures[:MOST_FAILURES], file)

    def _beside_page(self, link: str) -> str:
        """A link of the HTML page, as an address that a terminal can open."""
        return Path(self._options["html_file"]).absolute().parent.as_uri() + "/" + link

    def _write_profile(self, report: VerifyReport) -> None:
        import difflib
        import sys

        from athena.shells.verify.config_file import with_rule, write
        from athena.verify.profiling import profile_row, propose

        proposals = propose(report)
        if not proposals:
            click.echo("\nThere is nothing to write down: the evidence suggests no setting.")
            return
        click.echo("\nWhat the evidence suggests for this model's rule:")
        for one in proposals:
            click.echo(f"  {one.key}: {one.value}    ({one.because})")
        head = report.run.head
        click.echo(
            "\nAs a row of profiles.toml:\n\n" + "".join(f"  {line}\n" for line in profile_row(report, proposals).splitlines())
        )
        file = self._config_to_write()
        before = file.read_text("utf-8") if file.exists() else ""
        after = with_rule(before, f"{head.upstream}/{head.model}", _changes(proposals))
        if after == before:
            click.echo(f"{file} says so already.")
            return
        names = (str(file), str(file))
        difference = difflib.unified_diff(before.splitlines(), after.splitlines(), *names, lineterm="", n=2)
        click.echo("\n".join(difference))
        if not self._options["yes"]:
            if not sys.stdin.isatty():
                click.echo("\nNothing was written: --yes writes it without asking.")
                return
            click.confirm(f"\nWrite this into {file}?", abort=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, after)
        click.echo(f"\nWritten. athena config check {file} looks over it; an athena.yml of a project has to be trusted anew.")

    def _config_to_write(self) -> Path:
        if self._config_file:
            return Path(self._config_file)
        loaded = self._load({})
        return Path(loaded.files[-1]) if loaded.files else Path.home() / ".config" / "athena" / "athena.yml"


def _changes(proposals: tuple[Proposal, ...]) -> dict[tuple[str, ...], Any]:
    return {one.path: one.value for one in proposals}


def _offered(config: Config, upstream: str) -> dict[str, tuple[int, int]]:
    """The models that an upstream lists, with their windows; none where it lists none."""
    import asyncio

    from athena.shells.config import Router
    from athena.shells.gateway.model_lists import ModelLists
    from athena.shells.upstream import UpstreamClient

    async def ask() -> dict[str, tuple[int, int]]:
        client = UpstreamClient()
        lists = ModelLists(lambda: client)
        try:
            lists.use(config, Router(config))
            offer = await lists.offer(upstream)
            return {model.id: (model.window.context or 0, model.window.output or 0) for model in offer.models}
        finally:
            await lists.close()
            await client.close()

    return asyncio.run(ask())


def _read(name: str) -> VerifyRun:
    from athena.verify.runs import read_run

    try:
        return read_run(Path(name).read_bytes())
    except OSError as error:
        raise AthenaError(f"{name} cannot be read: {error.strerror or error}") from None


def _text_of(name: str) -> str:
    try:
        return Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AthenaError(f"{name} cannot be read: {error}") from None


class _Progress:
    """A bar and a table of what is known so far, on a terminal."""

    def __init__(self, planner: Planner) -> None:
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        from athena.shells.cli.terminal import error_console

        self._planner = planner
        self._bar = Progress(TextColumn("asked"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._task = self._bar.add_task("", total=planner.estimate().requests, completed=planner.requests)
        self._live = Live(self._shown(), console=error_console(), refresh_per_second=4, transient=True)

    def __enter__(self) -> _Progress:
        self._live.__enter__()
        return self

    def __exit__(self, *ended: Any) -> None:
        self._live.__exit__(*ended)

    def update(self) -> None:
        self._bar.update(self._task, completed=len(self._planner.tally.trials))
        self._live.update(self._shown())

    def _shown(self) -> Any:
        from rich.console import Group

        from athena.verify.reports import shown_rate

        table = _new_table("metric", "raw", "through Athena")
        for name in self._planner.tally.counted("raw"):
            through = self._planner.tally.interval("through", name)
            shown = f"{through.rate:.1%}" if through.count else ""
            table.add_row(name, shown_rate(self._planner.tally.interval("raw", name)), shown)
        return Group(self._bar, table)


def _new_table(*columns: str) -> Table:
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE, pad_edge=False)
    for column in columns:
        table.add_column(column)
    return table


def _show(report: VerifyReport, compared: tuple[Compared, ...], links: Mapping[str, str]) -> None:
    from rich.markup import escape

    from athena.shells.cli.terminal import console
    from athena.verify.reports import shown_rate

    out = console()
    head = report.run.head
    out.print(f"\n[bold]{escape(head.upstream)}/{escape(head.model)}[/] ({head.dialect}), {len(report.run.trials)} requests\n")
    table = _new_table("metric", "raw", "through", "lift", "verdict")
    battery = ""
    for metric in report.metrics:
        if metric.battery != battery:
            battery = metric.battery
            table.add_row(f"[bold]{battery}[/]")
        lift = f"{metric.lift:+.1f}" if metric.raw.count and metric.through.count else ""
        style = _STYLES[metric.verdict.value]
        through = f"{metric.through.rate:.1%}" if metric.through.count else ""
        table.add_row(metric.name, shown_rate(metric.raw), through, lift, f"[{style}]{metric.verdict.value}[/]")
    out.print(table)
    if report.classes:
        classes = _new_table("what was wrong", "raw", "through")
        for row in report.classes:
            classes.add_row(escape(row.label), shown_rate(row.raw), shown_rate(row.through))
        out.print(classes)
    if compared:
        rows = _new_table("against the reference", "points", "says")
        for one in compared:
            rows.add_row(one.name, f"{one.gap * 100:+.1f} ({one.low * 100:+.1f} to {one.high * 100:+.1f})", one.says)
        out.print(rows)
    for name, verdict in report.batteries.items():
        out.print(f"{name:<12} [{_STYLES[verdict.value]}]{verdict.value}[/]")
    _show_failures(out, report.failures, links)
    out.print(
        f"tokens: {report.input_tokens:,} in, {report.output_tokens:,} out"
        + (f"; cost: {report.cost:,.4f}" if report.cost else "")
    )


def _show_failures(out: Console, failures: tuple[VerifyTrial, ...], links: Mapping[str, str]) -> None:
    """The first failing exchanges with their ids; on a terminal an id is a link where there is a page."""
    from rich.markup import escape
    from rich.text import Text

    from athena.verify.verdicts import wrong_with

    kept = [trial for trial in failures if trial.recording]
    if not failures:
        return
    how = f"athena record show {kept[0].recording} shows the first" if kept else "none of them was kept"
    out.print(f"\n{len(failures)} exchanges failed; {how}")
    if not kept:
        return
    table = _new_table("exchange", "case", "what was wrong")
    table.columns[0].no_wrap = True
    for trial in kept[:_FAILURES_SHOWN]:
        link = links.get(trial.recording)
        name = Text(trial.recording, f"link {link}" if link else "")
        table.add_row(name, escape(f"{trial.case}, {trial.mode}"), escape(", ".join(wrong_with(trial, "raw"))))
    out.print(table)
    if len(kept) > _FAILURES_SHOWN:
        rest = "in the HTML report" if links else "athena record list --model verified, or --html FILE"
        out.print(f"and {len(kept) - _FAILURES_SHOWN} more: {rest}")
