"""What every answer needs: importing this loads it, in the process that others are forked from."""

from rackplan.requests import flag_of
from rackplan.serve.plot import plot
from rackplan.serve.question import Question, Source
from topology.base.errors import spelling

with spelling(flag_of):
    plot(Question(model=Source(name="qwen3-8b"), clusters=(Source(name="hgx-h100"),)))
