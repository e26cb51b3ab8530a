"""Limits of what is read: each refusal names its own. They keep what is malformed cheap; what is right stays below.

Sizes are a few times those of the largest real file of the kind.
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
