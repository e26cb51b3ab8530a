"""The help of a command: the first options in three sections, all by ``--help-all``, and two examples that run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from inspect import Parameter
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from rackplan.options import groups_of
from topology.base.errors import InputError

INPUTS, RUN, OPTIONS = "Inputs", "Run and output", "Options"
_INPUTS = {"model", "cluster", "plan", "study", "loads", "routing", "to", "kind"}
_RUN = {"output", "time_limit", "seed", "json", "help", "help_all"}
_HELP = {"help", "help_all"}
COMMON: Mapping[str, str] = {
    "plan": "model cluster loads phase context batch tpot_ms goal redundant time_limit output json",
    "sweep": "model cluster phase context isl osl tpot_ms ttft_ms prefill_cluster weights output json",
    "size": "model cluster tok_s context isl osl tpot_ms ttft_ms utilization spares output json",
    "compare": "model gpus tok_s_user phase context weights kv_dtype engine settings price output json",
    "fleet": "model cluster tok_s goal isl osl tpot_ms ttft_ms loads time_limit output json",
    "import-plan": "kind model cluster loads context batch ep tp stages weights output json",
    "import": "kind gpu gpus_per_node fabric nic oversubscription domains join_leaves hosts name output json",
}
"""Options that ``--help`` shows of a command that has more than twelve."""

EXAMPLES: Mapping[str, tuple[str, str]] = {
    "plan": (
        "rackplan plan --model deepseek-v3 --cluster gb200-nvl72",
        "rackplan plan --model qwen3-235b-a22b --cluster hgx-h200@16 --tpot-ms 40 --loads uniform -o out",
    ),
    "replan": (
        "rackplan replan out --lost d0.n3.g1 -o out-without",
        "rackplan replan out --loads zipf:0.4 --max-moves 200 -o out-moved",
    ),
    "score": ("rackplan score out --details", "rackplan score out --loads zipf:0.4 --json"),
    "what-if": ("rackplan what-if out", "rackplan what-if out --set gb200.hbm_bytes_per_s=2x"),
    "diff": ("rackplan diff out out-moved", "rackplan diff out out-moved --json"),
    "draw": ("rackplan draw gb200-nvl72 -o rack.svg", "rackplan draw gb200-nvl72 --plan out -o planned.png"),
    "traffic": (
        "rackplan traffic hgx-h100@64",
        "rackplan traffic gb200-nvl72@144 --pattern ring --bytes-per-gpu '64 MB'",
    ),
    "sweep": (
        "rackplan sweep --model deepseek-v3 --cluster gb200-nvl72",
        "rackplan sweep --model deepseek-v3 --cluster hgx-h200@32 --isl 4000 --osl 1000 -o sweep.csv",
    ),
    "size": (
        "rackplan size --model deepseek-v3 --cluster gb200-nvl72 --tok-s 200M",
        "rackplan size --model kimi-k2 --cluster hgx-h200@16 --tok-s 1M --isl 4000 --osl 1000",
    ),
    "compare": (
        "rackplan compare hgx-h100 gb200-nvl72 --model deepseek-v3",
        "rackplan compare gb200-nvl72 vr-nvl72 --model deepseek-v3 --tok-s-user 20,50 -o report.html",
    ),
    "fleet": (
        "rackplan fleet --model deepseek-v3 --cluster gb200-nvl72@144",
        "rackplan fleet --model deepseek-v3:0.7 --model qwen3-235b-a22b:0.3 --cluster gb200-nvl72@144 --goal usd",
    ),
    "export": (
        "rackplan export out --to sglang -o sglang.json",
        "rackplan export out --to trtllm -o trtllm.yaml",
    ),
    "import-plan": (
        "rackplan import-plan sglang.json --from sglang --model deepseek-v3 --cluster gb200-nvl72 -o out",
        "rackplan import-plan map.npy --from npy --model deepseek-v3 --cluster gb200-nvl72 -o out",
    ),
    "check": (
        "rackplan check sglang.json --for sglang --model deepseek-v3 --gpus 72",
        "rackplan check trtllm.yaml --for trtllm --model deepseek-v3 --gpus 72 --json",
    ),
    "import": (
        "rackplan import topo.txt -o cluster.yaml",
        "rackplan import 'n[1-16]=nccl.xml' topology.conf --gpu h100-sxm -o cluster.yaml",
    ),
    "replay": (
        "rackplan replay out --loads windows.npy",
        "rackplan replay out --loads windows.npy --policy vllm --policy rackplan:5% -o replay.html",
    ),
    "study": (
        "rackplan study study.yaml -o out",
        "rackplan study study.yaml --engine ray --address 10.0.0.1:6379 -o out",
    ),
    "loads": ("rackplan loads recording.pt", "rackplan loads windows.npy --json"),
    "catalog": ("rackplan catalog clusters", "rackplan catalog gb200-nvl72"),
    "schema": ("rackplan schema plan", "rackplan schema plan.json"),
    "validate": ("rackplan validate", "rackplan validate points.csv --details"),
    "serve": ("rackplan serve", "rackplan serve out --port 0"),
}
"""Two commands to copy, by command."""


_ALL = "rackplan.help_all"


def _show_all(ctx: typer.Context, given: bool) -> None:
    if given and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        sys.stdout.write(f"{ctx.get_help()}\n")
        raise typer.Exit


HELP_ALL = Parameter(
    "help_all",
    Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool,
        typer.Option(
            "--help-all",
            callback=_show_all,
            is_eager=True,
            expose_value=False,
            help="Show every option and exit.",
        ),
    ],
)
"""A parameter of the commands in ``COMMON``."""


class _Word(str):
    """A word of a command line, told from an equal one by its identity."""

    __slots__ = ()


class Command(TyperCommand):
    """A command whose help has sections and examples."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of a command line; those without an option say which options they may have meant."""
        if not ctx.resilient_parsing:
            self._refuse_bare_words(ctx, [_Word(word) for word in args])
        return super().parse_args(ctx, args)

    def _refuse_bare_words(self, ctx: Any, words: Sequence[str]) -> None:
        """Refuse words that fill no argument where required options are missing: they are what to type.

        Raises
        ------
        InputError
            If there are any, with the whole command line.
        """
        given, bare, _ = self.make_parser(ctx).parse_args(args=list(words))
        missing = [
            one
            for one in self.get_params(ctx)
            if one.required and one.param_type_name == "option" and one.name not in given
        ]
        if "help" in given or not 0 < len(bare) <= len(missing):
            return
        values = [*bare, *(one.metavar or one.name.upper() for one in missing[len(bare) :])]
        options = [text for one, value in zip(missing, values, strict=True) for text in (one.opts[0], value)]
        kept = [word for word in words if not any(word is one for one in bare)]
        typed = shlex.join(["rackplan", ctx.info_name, *kept, *options])
        raise InputError(f"{' '.join(bare)}: options need their names; type: {typed}")

    def sections(self, ctx: Any, shown: AbstractSet[str] | None = None) -> dict[str, list[tuple[str, str]]]:
        """Return the options in sections, none empty: inputs, one for each group, those of the run.

        Of the parameters ``shown`` alone the groups are one section.
        """
        grouped = groups_of(self.callback) if shown is None else {}
        sections: dict[str, list[tuple[str, str]]] = {
            INPUTS: [],
            OPTIONS: [],
            **{title: [] for title in grouped.values()},
            RUN: [],
        }
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            name = parameter.name or ""
            argument = parameter.param_type_name == "argument"
            if shown is not None and not argument and name not in shown:
                continue
            title = (
                INPUTS if argument or name in _INPUTS else RUN if name in _RUN else grouped.get(name, OPTIONS)
            )
            sections[title].append(record)
        return {title: records for title, records in sections.items() if records}

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options in their sections: those that are common, or all."""
        common = None if ctx.meta.get(_ALL) else COMMON.get(self.name or "")
        shown = None if common is None else {*common.split(), *_HELP}
        for title, records in self.sections(ctx, shown).items():
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, each on lines of its own."""
        examples = EXAMPLES.get(ctx.info_name or "", ())
        if examples:
            with formatter.section("Examples"):
                for example in examples:
                    formatter.write(_folded(example, formatter.width, " " * formatter.current_indent))


class Commands(TyperGroup):
    """All commands, in sections by what a user comes for."""

    SECTIONS: Mapping[str, str] = {
        "Plans": "plan replan score what-if diff replay",
        "Clusters and money": "compare sweep size fleet study draw traffic serve",
        "Engines": "export import-plan check",
        "Data": "import loads catalog validate schema",
    }

    def commands_in_sections(self, ctx: Any) -> dict[str, list[str]]:
        """Return the names of the commands in their sections, none empty; those of none come last."""
        names = self.list_commands(ctx)
        sections = {
            title: [name for name in wanted.split() if name in names]
            for title, wanted in self.SECTIONS.items()
        }
        known = {name for some in sections.values() for name in some}
        sections["Others"] = [name for name in names if name not in known]
        return {title: some for title, some in sections.items() if some}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands in their sections."""
        for title, some in self.commands_in_sections(ctx).items():
            records = []
            for name in some:
                command = self.get_command(ctx, name)
                if command is not None and not command.hidden:
                    records.append((name, command.get_short_help_str(limit=len(command.help or ""))))
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _folded(example: str, width: int, indent: str) -> str:
    """Return an example on lines that a shell joins again, options with their values."""
    lines, line = [], ""
    for word in example.replace(" -", "\n-").split("\n"):
        if line and len(indent) + len(line) + len(word) + 3 > width:
            lines.append(line)
            line = "    "
        line += ("" if not line.strip() else " ") + word
    return "".join(
        f"{indent}{text}{' ' + chr(92) if number < len(lines) else ''}\n"
        for number, text in enumerate([*lines, line])
    )
