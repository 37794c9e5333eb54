"""`kilocard bench`: measure what a server can do, and say what limits it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from kilocard.bench.accepted import Endpoint
from kilocard.bench.form import Form
from kilocard.bench.target import target_of
from kilocard.cli.bench_compare import compare_runs
from kilocard.cli.bench_options import DEFAULT_DURATION, DEFAULT_INPUT, DEFAULT_OUTPUT, Words, asked_of, body_of, slo_of
from kilocard.cli.bench_report import check_folder, write_files
from kilocard.cli.bench_session import Session
from kilocard.cli.bench_table import show
from kilocard.cli.output import notes, print_json
from kilocard.core.errors import UsageError

LOAD, LENGTHS, MUCH, SERVER, ANSWER = "What load", "What is asked", "How much", "The server", "The answer"


def bench(
    context: typer.Context,
    url: Annotated[
        str | None,
        typer.Argument(help="Of any OpenAI-compatible server: http://127.0.0.1:8000", show_default=False),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            help="Requests in flight, one point each: 1,2,4,8,16. Default: doubling until past the knee, then closer.",
            rich_help_panel=LOAD,
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            help="Requests a second, arriving by chance (Poisson) whether or not the server keeps up: 2 or 0.5,1,2,4. "
            "This is how users come.",
            rich_help_panel=LOAD,
        ),
    ] = None,
    burstiness: Annotated[
        float,
        typer.Option(help="With --rate: 1 is Poisson, 0.2 comes in bursts, 10 nearly evenly.", rich_help_panel=LOAD),
    ] = 1.0,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Requests with their times from a file: kilocard's own, Azure, Mooncake, BurstGPT, Bailian.",
            rich_help_panel=LOAD,
        ),
    ] = None,
    input_: Annotated[
        str | None,
        typer.Option(
            "--input",
            help=f"Prompt tokens: 512, 256-1024, mean=800,p99=4000. Default: {DEFAULT_INPUT}.",
            rich_help_panel=LENGTHS,
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option(help=f"Answer tokens, the same. Default: {DEFAULT_OUTPUT}.", rich_help_panel=LENGTHS)
    ] = None,
    mix: Annotated[
        str | None,
        typer.Option(help="Several kinds of request: '90% 200/100; 10% 4000/200'.", rich_help_panel=LENGTHS),
    ] = None,
    turns: Annotated[
        str | None,
        typer.Option(
            help="Conversations of so many turns (5, or 2-8): each prompt is the history and --input new tokens, so "
            "that the prefix cache has work.",
            rich_help_panel=LENGTHS,
        ),
    ] = None,
    think: Annotated[
        str, typer.Option(help="With --turns: mean time between an answer and the next turn.", rich_help_panel=LENGTHS)
    ] = "0s",
    system: Annotated[
        int, typer.Option(help="With --turns: tokens of a system prompt that all share.", rich_help_panel=LENGTHS)
    ] = 0,
    duration: Annotated[
        str | None,
        typer.Option(
            help=f"Of each point's measured window; warm-up comes on top. Default: {DEFAULT_DURATION}. Of a trace: its "
            "first so many seconds.",
            rich_help_panel=MUCH,
        ),
    ] = None,
    requests: Annotated[
        int | None, typer.Option(help="Measure so many requests a point, instead of a time.", rich_help_panel=MUCH)
    ] = None,
    repeats: Annotated[
        int, typer.Option(help="Measure each point so often: only then is noise known.", rich_help_panel=MUCH)
    ] = 1,
    most: Annotated[
        int, typer.Option("--max-concurrency", help="Where doubling ends at the latest.", rich_help_panel=MUCH)
    ] = 512,
    stop_early: Annotated[
        bool | None,
        typer.Option(
            "--stop-early/--no-stop-early",
            help="Skip larger loads when past the knee. Default: only without --sweep and --rate.",
            rich_help_panel=MUCH,
        ),
    ] = None,
    single: Annotated[
        bool,
        typer.Option(
            "--single/--no-single",
            help="First one request at a time: prefill and decode apart.",
            rich_help_panel=MUCH,
        ),
    ] = True,
    max_seconds: Annotated[
        str, typer.Option(help="End after so long, with what was measured until then.", rich_help_panel=MUCH)
    ] = "30m",
    seed: Annotated[
        int | None,
        typer.Option(
            help="Of lengths and arrivals. The words of the prompts are new in each run, so that no cache knows them.",
            rich_help_panel=MUCH,
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Needed where the server has several.", rich_help_panel=SERVER)
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(
            help="Environment variable with the API key. Default: KILOCARD_API_KEY, then OPENAI_API_KEY.",
            rich_help_panel=SERVER,
        ),
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(help="chat or completions. Default: chat, if it answers.", rich_help_panel=SERVER)
    ] = None,
    metrics_url: Annotated[
        list[str] | None,
        typer.Option(
            help="Metrics page of the engine, one for each replica, if it is not at URL/metrics.",
            rich_help_panel=SERVER,
        ),
    ] = None,
    gpu_metrics_url: Annotated[
        list[str] | None,
        typer.Option(help="DCGM exporter's page, if the GPUs are elsewhere.", rich_help_panel=SERVER),
    ] = None,
    body: Annotated[
        str | None,
        typer.Option(help="More fields of each request, as JSON: '{\"temperature\": 0.7}'.", rich_help_panel=SERVER),
    ] = None,
    ignore_eos: Annotated[
        bool,
        typer.Option(
            "--ignore-eos/--natural-ends",
            help="Answers of exactly --output tokens, or as long as the model likes.",
            rich_help_panel=SERVER,
        ),
    ] = True,
    slo_ttft: Annotated[
        str | None, typer.Option(help="Goodput counts requests with a TTFT up to this: 500ms.", rich_help_panel=ANSWER)
    ] = None,
    slo_tpot: Annotated[str | None, typer.Option(help="And a TPOT up to this: 50ms.", rich_help_panel=ANSWER)] = None,
    slo_e2e: Annotated[str | None, typer.Option(help="And an end up to this: 10s.", rich_help_panel=ANSWER)] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for results.json, requests.jsonl and report.html.", rich_help_panel=ANSWER),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print results.json on stdout.", rich_help_panel=ANSWER)] = False,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            help="Measure nothing: what changed between two runs' folders, and is it more than noise? Exit code 1: "
            "something became worse.",
            rich_help_panel=ANSWER,
        ),
    ] = None,
) -> None:
    """Measure a server: throughput and latency at rising load, the knee, and what limits it.

    `kilocard bench http://127.0.0.1:8000 --out run1` asks one request at a time, then 1, 2, 4, … at once, until more
    load gives no more throughput. Use the lengths of your own traffic (`--input`, `--output`): they decide everything.

    Numbers are refused rather than guessed: exit code 1 when this program was the limit, when most requests failed at
    every load or when the numbers contradict each other; 2 for bad input. Ctrl-C stops and keeps what was measured
    (exit code 1).
    """
    if compare is not None:
        if url is not None:
            raise UsageError("--compare measures nothing: leave the URL away")

        if out is not None:
            check_folder(out)
        comparison = compare_runs(*compare, as_json=json, html=None if out is None else out / "compare.html")
        if comparison.worse:
            notes.print(f"B must not pass for as good as A: {'; '.join(comparison.worse)}", style="red")
            raise typer.Exit(1)
        return
    if url is None:
        raise UsageError("give the server's URL, such as http://127.0.0.1:8000")
    arguments = {name: _plain(value) for name, value in context.params.items() if value is not None}
    words = Words(
        sweep, rate, trace, burstiness, input_, output, mix, turns, think, system, duration, requests, repeats, most,
        max_seconds, single, seed,
    )  # fmt: skip
    asked = asked_of(words)
    if out is not None:
        check_folder(out)
    session = Session(
        asked,
        target_of(url, api_key=_key(api_key_env), environ=os.environ),
        model=model,
        endpoint=_endpoint(endpoint),
        form=Form(model or "", ignore_eos=ignore_eos, extra=body_of(body)),
        metrics_urls=metrics_url or [],
        gpu_urls=gpu_metrics_url or [],
        slo=slo_of(slo_ttft, slo_tpot, slo_e2e),
        stop_early=not asked.loads if stop_early is None else stop_early,
        arguments=arguments,
    )
    results, measured, failed = session.measure()
    if out is not None:
        write_files(out, results, measured)
        notes.print(f"Written: {out}/results.json, requests.jsonl, report.html")
    if json:
        print_json(results)
    else:
        show(results)
    if failed is not None:
        notes.print(failed, style="red")
        raise typer.Exit(1)


def _plain(value: object) -> object:
    """As JSON has it."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, bool | int | float | str) else str(value)


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise UsageError(f"--api-key-env {variable}: there is no such environment variable, or it is empty")
    return key


def _endpoint(text: str | None) -> Endpoint | None:
    if text in (None, "chat", "completions"):
        return text  # type: ignore[return-value]  # mypy does not narrow to the literals
    raise UsageError(f"--endpoint {text}: chat or completions")
