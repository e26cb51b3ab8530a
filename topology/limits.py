"""Limits of what is read and of what is planned: each refusal names its own.

Those of what is read keep what is malformed cheap; sizes are a few times those of the largest real file of the kind.
"""

from __future__ import annotations

MESSAGE_CHARACTERS = 1_000
"""Of a message that repeats what somebody wrote: the middle of a longer one is left out."""
TEXT_BYTES = 32_000_000
"""Of a text file that is read whole: a plan of 94 layers with 4,096 slots takes 3 MB."""
SOURCE_BYTES = 64_000_000
"""Of another tool's dump."""
SOURCE_LINE = 1_000_000
"""Characters in one of its lines."""
SOURCE_VALUES = 2_000_000
"""Values of such a dump in YAML or JSON."""
TABLE_BYTES = 256_000_000
"""Of a CSV file."""
DEEPEST = 64
"""Levels of lists, mappings and elements within each other."""
XML_ELEMENTS = 200_000
HOST_NAME = 1_000
"""Characters of a host in a hostlist: four times those of the longest that a network knows."""
HOSTLIST_NAMES = 200_000
"""Names that one hostlist stands for."""
IMPORTED_GPUS = 131_072
"""GPUs of a cluster that is imported: as many as the largest there are, and a tree of them takes a minute."""
NPY_HEADER_BYTES = 10_000
"""Of the header of a ``.npy`` file, NumPy's own limit."""
STUDY_BYTES = 2**30
"""Of the journal of a study; its rows move into Parquet files every few thousand."""
PICKLE_BYTES = 64 * 2**20
"""Of the pickle in a ``.pt`` file: 5 GB of SGLang's per-token records have about 30 MB."""
PICKLE_GROWTH = 2
"""How many times the file's own bytes its pickle may have, beyond a megabyte: torch.save compresses nothing."""
PICKLE_OPCODES = 12_000_000
"""Those records have six to ten million; each may cost 50 bytes."""
PICKLE_CONTAINERS = 4_000_000
"""Lists, dicts, tuples and remembered values, about 100 bytes each."""
PICKLE_INT_BYTES = 64
ZIP_MEMBERS = 1_000_000


# What is planned: 120 s of CPU and 2 GB are kept below these, as benchmarks/limits.py measures (docs/limits.md).
# Beyond, a command ends before it does anything heavy, and says what would fit.

LAYERS = 10_000
"""Of a model."""
EXPERTS = 4_096
"""Of a layer."""
GPUS = 131_072
"""Of a cluster, however it is described: its links alone take 0.8 GB."""
SIZED_GPUS = 1_000_000
"""Of a cluster that ``rackplan size`` counts: its links are never laid."""
WHOLE = 10**18 - 1
"""Of a whole number that is asked for: what counts in 64 bits and in floats takes it."""
TOK_S = 1e15
"""Output tokens per second that a cluster is counted or a fleet is made for."""
LAYER_GPUS = 8_000_000
"""Layers of a model times GPUs of a cluster: a plan file has a row for each."""
LAYER_EXPERTS = 655_360
"""MoE layers times experts of each, where experts are placed."""
PLAN_COPIES = 2**25
"""Replicas times MoE layers times expert copies of each: a plan file has a number for each."""
PLAN_BYTES = 320_000_000
"""Of a plan file that is read: one of so many copies has up to 290 MB."""
LOAD_NUMBERS = 15_000_000
"""Scenarios times MoE layers times experts: 1,010 scenarios of 58 layers with 256 experts."""
PLANNED_NUMBERS = 8_000_000
"""Of them, for a plan: 538 scenarios, each placed and priced."""
PLANNED_SCENARIOS = 2_000
"""The same, however small the model: any two are compared, and 15,625 took ten minutes and 5 GB."""
REPLAY_WORK = 38_000_000
"""Windows of a replay times what all its policies do in one, about 2.9 microseconds each: see
:func:`placement.online.policies.work_of_a_window`; 248 windows of 58 layers with 256 experts and all policies."""
DRAWN_PAIRS = 400_000_000
"""Pairs of GPUs whose traffic is drawn one by one: 268 million take 42 s."""
TORUS_GPUS = 16_384
"""Of one domain without switches, whose links are followed one by one; the largest that are built have 9,216."""
LISTED_GPUS = 4_096
"""Of a cluster that is listed link by link: no two of its domains are taken to be alike."""
