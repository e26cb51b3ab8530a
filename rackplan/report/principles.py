"""Documents of the blackboard: rooflines of a model on clusters, and the economics of its prices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cost.principles.economics import Economics
from cost.principles.lecture import lecture
from cost.principles.roofline import Roofline, Rooflines
from rackplan.report import shared
from rackplan.report.doc import Chart, Doc, Layer, Note, Record, Row, Shape, Table
from rackplan.report.fields import FIELDS, phrase
from topology.base.units import plural

LECTURE = "the lecture"


def _board(key: str, fields: str, title: str) -> Table:
    return Table.of(key, f"cluster {fields}", title, across=True, max_rows=None)


BALANCE = _board(
    "balance",
    "domain_gpus used_gpus bf16_flop_per_byte total_over_active dense_equivalent balancing_batch "
    "unbatched_cost_ratio decode_flop_share prefill_flop_share flop_share_ratio",
    "Compute and memory",
)
LATENCY = _board(
    "latency",
    "weight_bytes weights_read_s sweep_s longest_wait_s fill_s fastest_ratio faster_price_ratio domain_tok_s "
    "domains_wanted",
    "Steps and waits",
)
DOMAIN = _board(
    "domain",
    "gpu_experts leaving_2_share leaving_4_share leaving_8_share scale_up_rate_ratio scale_up_links "
    "alltoall_inside_s alltoall_across_s domain_hbm_bytes_per_s",
    "One domain bounds an expert layer",
)
PIPELINE = _board(
    "pipeline",
    "stages stage_layers stage_links_ratio hop_bytes_per_step hop_s stage_weight_bytes stage_kv_bytes "
    "lone_bubble_share training_bubble_share",
    "Layers over domains",
)
CONTEXT = _board(
    "context",
    "kv_bytes_per_token compute_per_token_s cache_read_per_token_s equal_context wall_context sparse_wall_context "
    "activation_bytes_per_token reversible_bytes_per_token",
    "Context, and activations in training",
)
BOARDS = (BALANCE, LATENCY, DOMAIN, PIPELINE, CONTEXT)
STEPS = Table.of(
    "steps",
    "cluster step_tokens compute_s hbm_s lower_step_s step_s flop_share gpu_s_per_million_tokens "
    "usd_per_million_tokens",
    "Steps over batches",
    per="cluster",
    max_rows=None,
)
_ROOT = Record.of("", "model context phase", max_rows=0)
ROOFLINE = Shape(
    "roofline",
    "What first principles say of a model on clusters, with the lecture's figures as a cluster of their own.",
    (_ROOT, *BOARDS, STEPS, shared.SET),
)


def roofline_doc(result: Rooflines) -> Doc:
    """Return the document of ``rackplan roofline``."""
    base = result.boards[0]
    work, model = base.deployment.workload, base.deployment.model
    steps = STEPS(row for board in result.boards for row in _steps(board))
    names = [board.deployment.cluster.name for board in result.boards]
    figures = [{**board.figures, "cluster": name} for board, name in zip(result.boards, names, strict=True)]
    tables = [_beside(table, figures) for table in BOARDS]
    return Doc(
        ROOFLINE,
        f"{model.name} on {', '.join(names)}: {work.phase} at {plural(work.context, 'token')} of context",
        list(_answer(base)),
        [
            _ROOT({"model": model.name, "context": work.context, "phase": work.phase}),
            shared.set_table(*(board.deployment.cluster for board in result.boards)),
            *map(_latency, result.boards),
            Chart(
                "Cost of a token over batches",
                [Layer("line", steps, "step_tokens", "gpu_s_per_million_tokens", "cluster")],
                log="xy",
                alt="Cost of a token against the batch: towards infinity at one token, flat at the end",
            ),
            *tables[:2],
            *_unpriced(result.boards, "usd_per_million_tokens"),
        ],
        [steps, *tables[2:], *_differences(base.figures)],
    )


def _answer(board: Roofline) -> Iterator[str]:
    """Yield what balances a step, how long all of HBM takes to read, and from which context memory is behind."""
    row = board.figures
    yield (
        f"A GPU of {board.deployment.cluster.name} computes {row['bf16_flop_per_byte']:,.0f} flop while it reads a "
        f"byte, so {row['balancing_batch']:,.0f} tokens a step balance computing and reading, "
        f"{row['total_over_active']:.3g} times those of a dense model."
    )
    yield (
        f"A step takes at least {phrase(row, 'weights_read_s')}, in which {plural(board.gpus, 'GPU')} read all "
        f"weights, and {phrase(row, 'sweep_s')} where all of HBM is read."
    )
    wall = row["wall_context"]
    yield (
        "Memory is never behind computing at any context."
        if wall is None
        else f"Beyond {wall:,.0f} tokens of context reading the cache takes longer than computing, at any batch."
    )


def _beside(table: Table, rows: Sequence[Row]) -> Table:
    """Return a table with the lecture's figures in the first column."""
    spoken = {
        column.key: lecture()[column.key].value if column.key in lecture() else None
        for column in table.fields
    }
    return table([{**spoken, "cluster": LECTURE}, *rows])


def _differences(row: Row) -> list[Note]:
    """Return why figures differ from those of the lecture."""
    pairs = (
        (FIELDS[key].label, figure.why) for key, figure in lecture().items() if key in row and figure.why
    )
    return [Note(f"{label}: {why}.", kind="method") for label, why in pairs]


def _unpriced(boards: Iterable[Roofline], about: str) -> list[Note]:
    """Return what to set where a chip has no price and ``about`` therefore no figure."""
    names = dict.fromkeys(board.gpu.name for board in boards if board.price is None)
    return [
        Note(f"{name} has no price; set one with --price {name}=2.50.", about, "missing") for name in names
    ]


def _steps(board: Roofline) -> Iterator[Row]:
    columns, price = board.listed, board.price
    for values in zip(*(column.tolist() for column in columns.values()), strict=True):
        row = dict(zip(columns, values, strict=True))
        cost = None if price is None else row["gpu_s_per_million_tokens"] * price.value / 3600
        yield {**row, "cluster": board.deployment.cluster.name, "usd_per_million_tokens": cost}


def _latency(board: Roofline) -> Chart:
    """Return the lecture's picture: a line of computing, one of reading, their maximum, and the prediction."""
    columns = board.drawn
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    table = Table.of("", " ".join(columns))(rows)
    lines = {"step_s": "predicted", "lower_step_s": "the larger", "hbm_s": "weights and cache"}
    return Chart(
        f"Latency of a step over batches: {board.deployment.cluster.name}",
        [
            Layer("line", table, "step_tokens", key, name=label)
            for key, label in {**lines, "compute_s": "computing"}.items()
        ],
        alt="Computing rises with the batch; reading starts at the weights and rises with the cache",
    )


PRICES = _board(
    "prices",
    "long_context price_kv_bytes price_kv_flop_bytes kv_bytes_per_token output_over_input flop_share_ratio "
    "long_premium covered_context input_over_cached",
    "What prices tell",
)
LIFE = _board(
    "life",
    "active_params served_tokens chinchilla_tokens overtraining equal_pretrain_tokens",
    "Tokens over a life",
)
TRAINING = _board(
    "training",
    "pretrain_flop_per_token low_rl_flop_per_token high_rl_flop_per_token inference_flop_per_token inference_flop "
    "low_equal_rl_tokens high_equal_rl_tokens smaller_params smaller_tokens smaller_saved_share",
    "Flop of training and inference",
)
TIERS = Table.of(
    "cache_tiers",
    "tier drain_s five_minutes_usd_per_million_tokens hour_usd_per_million_tokens computed_over_kept "
    "cheaper_until_s next_cheaper_s | bytes bytes_per_s usd_per_hour source",
    "Where a cached token waits",
)
HOLDING = Table.of("holding", "tier holding_s usd_per_million_tokens", "Cost over holding time", max_rows=0)
_PRICED = Record.of("", "model cluster computed_usd_per_million_tokens", max_rows=0)
ECONOMICS = Shape(
    "economics",
    "What prices tell of the machine behind them, with the lecture's figures as a cluster of their own.",
    (_PRICED, PRICES, TIERS, HOLDING, LIFE, TRAINING, shared.SET),
)


def economics_doc(result: Economics) -> Doc:
    """Return the document of ``rackplan economics``."""
    row, board = result.figures, result.roofline
    deployment = board.deployment
    cells = {**row, "cluster": deployment.cluster.name}
    prices, life, training = (_beside(table, [cells]) for table in (PRICES, LIFE, TRAINING))
    holding = HOLDING(result.holding())
    return Doc(
        ECONOMICS,
        f"Economics of {deployment.model.name} on {deployment.cluster.name}",
        list(_lessons(result)),
        [
            _PRICED({**row, "model": deployment.model.name, "cluster": deployment.cluster.name}),
            shared.set_table(deployment.cluster),
            prices,
            TIERS(_tier_rows(result)),
            Chart(
                "Cost of a cached token over holding time",
                [Layer("line", holding, "holding_s", "usd_per_million_tokens", "tier")],
                log="xy",
                alt="Each tier costs its time to read, then rises with time; computing again costs the same always",
            ),
            life,
            *_unpriced([board], "computed_usd_per_million_tokens"),
        ],
        [training, holding, *_differences(row)],
    )


def _lessons(result: Economics) -> Iterator[str]:
    """Yield what the price step says, what a hit saves, and what the tokens served are worth in training."""
    row = result.figures
    yield (
        f"A price that steps up at {row['long_context']:,.0f} tokens tells of {phrase(row, 'price_kv_bytes')} of "
        f"cache a token; {result.roofline.deployment.model.name} has {phrase(row, 'kv_bytes_per_token')}."
    )
    recompute_usd, (hbm, *_) = row["computed_usd_per_million_tokens"], result.kept
    if recompute_usd is not None and hbm.usd[0]:
        yield (
            f"A million cached tokens cost {recompute_usd:.3g} USD to compute again, "
            f"{recompute_usd / hbm.usd[0]:.3g} times as much as to keep them in HBM for five minutes."
        )
    yield (
        f"{phrase(row, 'served_tokens')} tokens served are {phrase(row, 'overtraining')} times the "
        f"{phrase(row, 'chinchilla_tokens')} that compute-optimal training takes."
    )


def _tier_rows(result: Economics) -> Iterator[Row]:
    recompute_usd = result.figures["computed_usd_per_million_tokens"]
    for tier, (minutes, hour), until, beaten in result.kept:
        figures = tier.capacity_bytes, tier.bytes_per_s, tier.usd_per_h
        yield {
            "tier": tier.name,
            "drain_s": tier.drain_s,
            "five_minutes_usd_per_million_tokens": minutes,
            "hour_usd_per_million_tokens": hour,
            "computed_over_kept": recompute_usd / minutes if recompute_usd and minutes else None,
            "cheaper_until_s": until,
            "next_cheaper_s": beaten,
            "bytes": tier.capacity_bytes.value,
            "bytes_per_s": tier.bytes_per_s.value,
            "usd_per_hour": tier.usd_per_h and tier.usd_per_h.value,
            "source": "; ".join(dict.fromkeys(figure.source for figure in figures if figure)),
        }
