"""GPUs of a cluster file: the catalog's, changed and extended by figures of the file's owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from topology.catalog import GPU_FIGURES, gpu_names, load_gpu
from topology.errors import InputError
from topology.figures import Evidence, Figure
from topology.plausible import check_gpu_figures
from topology.reading import Fields, nearest
from topology.spec import GpuSpec
from topology.units import parse_quantity


class Gpus:
    """GPUs by name, with the file's figures in place of the catalog's."""

    def __init__(self, overrides: Mapping[str, Mapping[str, Figure]]) -> None:
        self._overrides = overrides
        self._used: set[str] = set()

    def __call__(self, name: str, where: str) -> GpuSpec:
        """Return the GPU called ``name``.

        Raises
        ------
        InputError
            If neither the catalog nor the file has it.
        """
        own = self._overrides.get(name)
        self._used.add(name)
        if name in gpu_names():
            gpu = load_gpu(name)
            return replace(gpu, figures={**gpu.figures, **own}) if own else gpu
        if own is None or "hbm_bytes" not in own:
            raise InputError(
                f'{where}: unknown GPU "{name}"; {nearest(name, gpu_names())} '
                "A GPU of your own needs its figures under `gpus:`."
            )
        return GpuSpec(name, name, "user", "user", 1, own)

    def refuse_unused(self, where: str) -> None:
        """Refuse figures for a GPU that no domain has: they would change nothing."""
        for name in self._overrides:
            if name not in self._used:
                raise InputError(
                    f"{where}: figures for {name!r}, but no domain has it; {nearest(name, self._used)}"
                )


def read_overrides(fields: Fields, where: str) -> dict[str, dict[str, Figure]]:
    """Return the file's own figures under ``gpus`` and ``prices``."""
    own: dict[str, dict[str, Figure]] = {}
    if "gpus" in fields:
        table = fields.sub("gpus")
        for name in table.names():
            row = table.sub(name)
            own[name] = {
                key: user_figure(row, key, unit, where) for key, unit in GPU_FIGURES.items() if key in row
            }
            if name in gpu_names():
                check_gpu_figures(row, load_gpu(name), own[name])
            row.done()
    if "prices" in fields:
        prices = fields.sub("prices")
        for name in prices.names():
            own.setdefault(name, {})["usd_per_h"] = user_figure(prices, name, "USD/h", where)
    return own


def user_figure(fields: Fields, key: str, unit: str, file: str) -> Figure:
    """Return one figure that the file's owner vouches for."""
    text = fields.text(key) if isinstance(fields.get(key), str) else fields.need(key)
    value = parse_quantity(text, unit, fields.at(key))
    return Figure(value, unit, Evidence.USER, file, str(text))
