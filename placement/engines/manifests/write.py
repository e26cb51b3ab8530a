"""What starts a plan's replicas, as a file: a Kubernetes manifest or a script of Slurm or MPI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from placement.engines.engine import Engine, Role
from placement.engines.export import Exported, export_plan
from placement.engines.manifests import KINDS
from placement.engines.manifests.kubernetes import dns_name, manifest
from placement.engines.manifests.packing import beside
from placement.engines.manifests.pools import Pool, host_names, make_pool, used_nodes
from placement.engines.manifests.scripts import RANK, script
from placement.plan import Plan
from placement.pools import named_pools
from topology.base.errors import InputError, called, input_name
from topology.importers.hostlist import expand_hosts


@dataclass(frozen=True)
class Manifest:
    """A file that starts replicas.

    Attributes
    ----------
    suffix:
        Ending of its name.
    start:
        The command that takes the file, before its name.
    notes:
        What a person must do or know first.
    """

    kind: str
    text: str
    suffix: str
    start: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ExportRequest:
    """What to export, and what starts it.

    Attributes
    ----------
    output:
        The plan file; files besides stand beside it.
    launch:
        One of :data:`placement.engines.manifests.KINDS`.
    tp, served:
        As of :func:`placement.engines.export.export_plan`.
    hosts:
        Hostlist of the hosts in the order of the plan, pool by pool; None: names of the plan's cluster.
    image:
        Of the container; empty: a placeholder.
    ranks:
        Whether a table of ranks stands beside.
    """

    engine: Engine
    output: Path
    launch: str = "shell"
    tp: int | None = None
    served: str = ""
    hosts: str | None = None
    image: str = ""
    ranks: bool = False


@dataclass(frozen=True, eq=False)
class Deployed:
    """The pools of a plan as files that are not yet written.

    Attributes
    ----------
    exported:
        Each pool in the engine's form.
    names:
        Of each pool, what each node of its cluster is called.
    pools:
        Their replicas on hosts; empty for lines of a shell.
    manifest:
        What starts them; None for lines of a shell.
    files:
        Text of each file by path, the plan file first.
    """

    exported: tuple[Exported, ...]
    names: tuple[Mapping[str, str], ...]
    pools: tuple[Pool, ...]
    manifest: Manifest | None
    files: Mapping[Path, str]


def deploy(request: ExportRequest, plan: Plan) -> Deployed:
    """Return all pools of ``plan`` as ``request`` says, each with a plan file of its own.

    Raises
    ------
    InputError
        If the engine would reject or misread a pool, or cannot be started so.
    """
    kind = request.launch
    if kind not in KINDS:
        raise InputError(f"expected {', '.join(KINDS[:-1])} or {KINDS[-1]}.", field="launch", value=kind)
    if kind == "shell":
        hosts = None if request.ranks else request.hosts
        of = {"hosts": hosts, "image": request.image}
        name = next((name for name, value in of.items() if value), None)
        if name is not None:
            raise InputError(
                f"{input_name(name)} needs a launch file: {input_name('launch')} "
                f"{', '.join(KINDS[1:-1])} or {KINDS[-1]}."
            )
    models = dict.fromkeys(pool.deployment.model.name for pool in plan.pools)
    if kind != "shell" and len(models) > 1:
        raise InputError(
            f"the plan serves {' and '.join(models)}, and a launch file starts one model; use {input_name('launch')} "
            "shell, or plan each alone.",
            field="launch",
            value=kind,
        )
    called_as = [name.replace(" ", "-") for name in named_pools(plan)]
    path, exported = request.output, list[Exported]()
    paths = [path, *(path.with_suffix(f".{name}{path.suffix}") for name in called_as[1:])]
    for pool, file, name in zip(plan.pools, paths, called_as, strict=True):
        try:
            role: Role = pool.role if plan.beside else "both"  # type: ignore[assignment]  # of its three words
            exported.append(
                export_plan(pool, request.engine, str(file), tp=request.tp, served=request.served, role=role)
            )
        except InputError as error:
            raise InputError(f"pool {name}: {error}") from None if plan.beside else error
    files = {file: export.text for export, file in zip(exported, paths, strict=True)}
    names = tuple(_names(request.hosts, plan.pools))
    if request.ranks:
        files[request.output.with_suffix(".ranks.csv")] = rank_table(exported, names)
    if kind == "shell":
        return Deployed(tuple(exported), names, (), None, files)
    base = dns_name(exported[0].launch.model.rpartition("/")[2])
    pools = tuple(
        make_pool(export, pool, hosts_of, f"{base}-{name}" if plan.beside else base, name.partition("-")[2])
        for export, pool, hosts_of, name in zip(exported, plan.pools, names, called_as, strict=True)
    )
    decodes = next((pool.name for pool in pools if pool.role == "decode"), "")
    if (level := beside(plan)) is not None and decodes:
        pools = tuple(
            replace(pool, beside=decodes, shared=level) if pool.role == "prefill" else pool for pool in pools
        )
    manifest = _manifest(kind, pools, request.image)
    files[request.output.with_suffix(f".{manifest.suffix}")] = manifest.text
    return Deployed(tuple(exported), names, pools, manifest, files)


def rank_table(exported: Sequence[Exported], names: Sequence[Mapping[str, str]]) -> str:
    """Return the host, GPU and NICs of each rank as CSV; ``gpu`` is its number on the host, ``id`` the plan's."""
    lines = ["role,replica,stage,rank,host,gpu,nics,id"]
    lines += [
        f"{pool.launch.role},{at.replica},{at.stage},{at.rank},{of[at.node]},{at.device},{' '.join(at.nics)},{at.gpu}"
        for pool, of in zip(exported, names, strict=True)
        for at in pool.places
    ]
    return "\n".join(lines) + "\n"


def _names(hosts: str | None, plans: Sequence[Plan]) -> list[dict[str, str]]:
    """Return the name of each node of the cluster of each pool; those given in the order of the pools."""
    if hosts is None or len(plans) == 1:
        return [host_names(plan, hosts and expand_hosts(hosts, input_name("hosts"))) for plan in plans]
    names, named = expand_hosts(hosts, input_name("hosts")), []
    for plan in plans[:-1]:
        used = len(used_nodes(plan))
        named.append(host_names(plan, names[:used]))
        names = names[used:]
    return [*named, host_names(plans[-1], names)]


def _manifest(kind: str, pools: Sequence[Pool], image: str) -> Manifest:
    """Return the file of ``kind`` that starts ``pools``, in containers of ``image`` (empty: unknown)."""
    if kind in RANK:
        if image:
            raise InputError("scripts run software installed on the hosts; leave it out.", field="image")
        notes = ["the script needs hosts where the plan file has the same path as here"]
        if not any(pool.named for pool in pools):
            notes.append(f"host names are those of the plan's cluster; set yours with {called('hosts')}")
        return Manifest(
            kind, script(kind, pools), f"{kind}.sh", "sbatch" if kind == "slurm" else "bash", tuple(notes)
        )
    text, notes = manifest(kind, pools, image)
    header = [
        "stages and expert groups of the plan: pod n of a replica runs on its n-th host",
        *(f"{pool.name}, {group.words}" for pool in pools for group in pool.groups),
        *(line.lstrip("# ") for pool in pools for line in pool.exported.flags if line.startswith("# NOT")),
    ]
    head = "".join(f"# {line}\n" for line in header)
    return Manifest(kind, head + text, f"{kind}.yaml", "kubectl apply -f", tuple(notes))
