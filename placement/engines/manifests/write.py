"""What starts a plan's replicas, as a file: a Kubernetes manifest or a script of Slurm or MPI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from placement.engines.engine import Engine, Role
from placement.engines.export import Exported, export_plan
from placement.engines.manifests import KINDS
from placement.engines.manifests.kubernetes import dns_name, manifest
from placement.engines.manifests.pools import Pool, host_names, make_pool, used_nodes
from placement.engines.manifests.scripts import RANK, script
from placement.plan import Plan
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
        Hostlist of the hosts in the order of the plan, then of a prefill plan; None: names of the plan's cluster.
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
    """A plan, or one for each of two pools, as files that are not yet written.

    Attributes
    ----------
    exported:
        The plan in the engine's form, then that of the prefill pool.
    names:
        Of each plan, what each node of its cluster is called.
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


def deploy(request: ExportRequest, plan: Plan, prefill: Plan | None = None) -> Deployed:
    """Return ``plan`` as ``request`` says; with ``prefill``, the plan of a prefill pool, it is the decode pool's.

    Raises
    ------
    InputError
        If the engine would reject or misread a plan, or cannot be started so.
    """
    kind = request.launch
    if kind not in KINDS:
        raise InputError(f"expected {', '.join(KINDS[:-1])} or {KINDS[-1]}.", field="launch", value=kind)
    if kind == "shell":
        hosts = None if request.ranks else request.hosts
        of = {"prefill": prefill, "hosts": hosts, "image": request.image}
        name = next((name for name, value in of.items() if value), None)
        if name is not None:
            raise InputError(
                f"{input_name(name)} needs a launch file: {input_name('launch')} "
                f"{', '.join(KINDS[1:-1])} or {KINDS[-1]}."
            )
    given: list[tuple[Plan, Path, Role]] = [(plan, request.output, "decode" if prefill else "both")]
    if prefill is not None:
        _require_pair(plan, prefill)
        given.append((prefill, request.output.with_suffix(f".prefill{request.output.suffix}"), "prefill"))
    exported = tuple(
        export_plan(one, request.engine, str(path), tp=request.tp, served=request.served, role=role)
        for one, path, role in given
    )
    files = {path: one.text for one, (_, path, _) in zip(exported, given, strict=True)}
    names = tuple(_names(request.hosts, [one for one, _, _ in given]))
    if request.ranks:
        files[request.output.with_suffix(".ranks.csv")] = rank_table(exported, names)
    if kind == "shell":
        return Deployed(exported, names, (), None, files)
    base = dns_name(exported[0].launch.model.rpartition("/")[2])
    pools = tuple(
        make_pool(one, of, called, base if role == "both" else f"{base}-{role}")
        for one, (of, _, role), called in zip(exported, given, names, strict=True)
    )
    manifest = _manifest(kind, pools, request.image)
    files[request.output.with_suffix(f".{manifest.suffix}")] = manifest.text
    return Deployed(exported, names, pools, manifest, files)


def rank_table(exported: Sequence[Exported], names: Sequence[Mapping[str, str]]) -> str:
    """Return the host, GPU and NICs of each rank as CSV; ``gpu`` is its number on the host, ``id`` the plan's."""
    lines = ["role,replica,stage,rank,host,gpu,nics,id"]
    lines += [
        f"{one.launch.role},{at.replica},{at.stage},{at.rank},{of[at.node]},{at.device},{' '.join(at.nics)},{at.gpu}"
        for one, of in zip(exported, names, strict=True)
        for at in one.places
    ]
    return "\n".join(lines) + "\n"


def _require_pair(plan: Plan, prefill: Plan) -> None:
    """Check that a plan decodes and the other one prefills, of one model."""
    for one, phase, word in ((plan, "decode", "PLAN"), (prefill, "prefill", called("prefill"))):
        if one.deployment.workload.phase != phase:
            raise InputError(
                f"{word}: the plan is for {one.deployment.workload.phase}, expected one for {phase}."
            )
    names = plan.deployment.model.name, prefill.deployment.model.name
    if names[0] != names[1]:
        raise InputError(f"the plan is for {names[1]}, but PLAN is for {names[0]}.", field="prefill")


def _names(hosts: str | None, plans: Sequence[Plan]) -> list[dict[str, str]]:
    """Return the name of each node of the cluster of each plan."""
    if hosts is None or len(plans) == 1:
        return [host_names(plan, hosts and expand_hosts(hosts, input_name("hosts"))) for plan in plans]
    names, used = expand_hosts(hosts, input_name("hosts")), len(used_nodes(plans[0]))
    return [host_names(plans[0], names[:used]), host_names(plans[1], names[used:])]


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
