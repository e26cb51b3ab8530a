"""The story of two clusters: what each factor of the second buys, in both orders; a waterfall of it on the page."""

from __future__ import annotations

from collections.abc import Sequence

from placement.compare import CompareRow
from placement.story import Story, StoryStep
from rackplan.schemas.clusters import StepOfStoryData, StoryData
from rackplan.views.blocks import Block, Chart, Heading, Table, Text, sections
from rackplan.views.charts import story_chart
from topology.units import plural

ORDERS = ("forward", "backward")


def story_blocks(story: Story, tokens: str) -> list[Block]:
    """Return the tables of a story, as a terminal shows them; ``tokens`` is the word for those counted."""
    one = len(story.forward) == 1
    steps = [_steps_table(story, name) for name in ORDERS[: 1 if one else 2]]
    return sections([Text(verdict(story, tokens))], [_gains_table(story)], *([table] for table in steps))


def story_page(story: Story, tokens: str) -> list[Block]:
    """Return the section of a report."""
    steps = [_steps_table(story, name) for name in ORDERS[: 1 if len(story.forward) == 1 else 2]]
    says = f"{tokens} tok/s/GPU after each factor, in both orders"
    return [
        Heading(f"From {story.first.cluster} to {story.last.cluster}, one factor at a time", 2),
        Text(verdict(story, tokens)),
        Chart("story", story_chart(story, tokens), says, 420),
        _gains_table(story),
        *steps,
        Text(NOTE, style="note"),
    ]


NOTE = (
    "The steps between the two are machines that nobody makes: figures of one in the other. Each is laid out anew "
    "for the same speed per user on as many GPUs. Downwards, a factor is moved on top of those above it; upwards, of "
    "those below. The gains of an order multiply to the whole."
)


def story_data(story: Story) -> StoryData:
    """Return the story for ``--json``."""
    return {
        "from": story.first.cluster,
        "to": story.last.cluster,
        "gpus": story.first.gpus,
        "tok_s_per_user": story.first.target_tok_s_per_user,
        "gain": story.total,
        "factors": [
            {
                "factor": forward.factor.name,
                "from": forward.factor.before,
                "to": forward.factor.after,
                "gain_forward": forward.gain,
                "gain_backward": backward.gain,
            }
            for forward, backward in story.by_factor
        ],
        "forward": [_step_data(step) for step in story.forward],
        "backward": [_step_data(step) for step in story.backward],
    }


def verdict(story: Story, tokens: str) -> str:
    """Return the story in two sentences: the whole, and what buys most of it."""
    first, last = story.first, story.last
    speed = first.target_tok_s_per_user
    where = f"At {speed:g} {tokens} tok/s/user" if speed else "With as much throughput as fits"
    text = (
        f"{where} {last.cluster} gives {last.tok_s_per_gpu:,.0f} {tokens} tok/s/GPU, {story.total:.2f} times "
        f"{first.cluster} ({first.tok_s_per_gpu:,.0f}), on {plural(first.gpus, 'GPU')} each."
    )
    both = [(a.gain * b.gain, a, b) for a, b in story.by_factor if a.gain is not None and b.gain is not None]
    if len(story.forward) > 1 and both:
        pick = max if story.total >= 1 else min
        _, *most = pick(both, key=lambda pair: pair[0])
        text += f" Most of it is {most[0].factor.name}: {_range(*most)}, depending on what was moved before."
    return text


def _range(forward: StoryStep, backward: StoryStep) -> str:
    low, high = sorted(step.gain or 0.0 for step in (forward, backward))
    return f"{low:.2f}x" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f}x to {high:.2f}x"


def _step_data(step: StoryStep) -> StepOfStoryData:
    row = step.row
    return {
        "factor": step.factor.name,
        "gain": step.gain,
        "reached_tok_s_per_user": row.tok_s_per_user,
        "tok_s_per_gpu": row.tok_s_per_gpu,
        "step_s": row.step_s,
        "batch": row.batch,
        "bound_by": row.bound_by,
        "layout": row.layout,
        "evidence": row.evidence,
        "reason": row.reason,
    }


def _gain(gain: float | None) -> str:
    return "out of reach" if gain is None else f"{gain:.2f}x"


def _gains_table(story: Story) -> Table:
    """What each factor buys: moved in the order of the rows, and in the other."""
    rows = [
        (step.factor.name, step.factor.before, step.factor.after, _gain(step.gain), _gain(back.gain))
        for step, back in story.by_factor
    ]
    rows.append(("all", "", "", f"{story.total:.2f}x", f"{story.total:.2f}x"))
    columns = ("factor", story.first.cluster, story.last.cluster, "gain, downwards", "gain, upwards")
    return Table(columns, rows, title="What each factor buys:", words=(0, 1, 2), ruled=True)


def _steps_table(story: Story, order: str) -> Table:
    steps: Sequence[StoryStep] = getattr(story, order)
    rows = [_cells(story.first.cluster, story.first, "")]
    for number, step in enumerate(steps, start=1):
        name = f"+ {step.factor.name}"
        if number == len(steps):
            name += f" = {story.last.cluster}"
        rows.append(_cells(name, step.row, _gain(step.gain)))
    columns = ("moved", "tok/s/GPU", "gain", "step ms", "batch", "layout", "bound by")
    title = "Downwards:" if order == "forward" else "Upwards:"
    return Table(columns, rows, title="" if len(steps) == 1 else title, words=(0, 5, 6))


def _cells(name: str, row: CompareRow, gain: str) -> tuple[str, ...]:
    if row.tok_s_per_gpu is None or row.step_s is None or row.batch is None:
        return name, "-", gain, *"----"
    speeds = f"{row.tok_s_per_gpu:,.0f}", gain, f"{row.step_s * 1e3:.2f}", f"{row.batch:g}"
    return name, *speeds, row.layout or "", row.bound_by or ""
