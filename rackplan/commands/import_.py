"""``rackplan import``: a cluster YAML from the files of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rackplan.commands.options import JsonFlag

NAME = "import"


def run(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Files of one cluster; HOSTS=FILE for a node's dump that is of certain hosts.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The cluster YAML to write.")
    ],
    kind: Annotated[
        str | None, typer.Option("--from", metavar="KIND", help="Kind of the files, if not told by content.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="NAME", help="GPU or system of the catalog.")
    ] = None,
    gpus_per_node: Annotated[
        int | None, typer.Option("--gpus-per-node", metavar="N", min=1, max=1024, help="GPUs under one host.")
    ] = None,
    fabric: Annotated[
        list[str] | None,
        typer.Option(
            "--fabric", metavar="NAME", help="Fabric of the catalog for scale-up links or NICs; repeatable."
        ),
    ] = None,
    nic: Annotated[
        str | None, typer.Option("--nic", metavar="RATE", help="One NIC, like '400 Gb/s'.")
    ] = None,
    uplink: Annotated[
        str | None, typer.Option("--uplink", metavar="RATE", help="One link between switches.")
    ] = None,
    oversubscription: Annotated[
        float | None,
        typer.Option(
            "--oversubscription", metavar="R", help="Downlink over uplink rate of a leaf, where not counted."
        ),
    ] = None,
    pcie: Annotated[
        str | None,
        typer.Option("--pcie", metavar="RATE", help="PCIe of a GPU, where NVLink does not join all."),
    ] = None,
    socket_link: Annotated[
        str | None, typer.Option("--socket-link", metavar="RATE", help="Link between the sockets of a host.")
    ] = None,
    hbm: Annotated[
        str | None,
        typer.Option("--hbm", metavar="BYTES", help="Memory of a GPU that the catalog does not have."),
    ] = None,
    domains: Annotated[
        str | None,
        typer.Option("--domains", metavar="HOW", help="leaf or node: which hosts share a scale-up domain."),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option("--hosts", metavar="LIST", help="Hosts with GPUs, like n[1-64], if not all are."),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option("--topology", metavar="NAME", help="Which topology of a Slurm topology.yaml."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the cluster; default: the first file's.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Make a cluster file from what other tools print.

    Topo -m, NCCL XML, Slurm, topograph, ibnetdiscover, InfraGraph, NetQ, SimAI.
    """
    from rackplan import __version__
    from rackplan.import_summary import import_comments, import_json, import_summary
    from rackplan.output import print_json, print_text
    from topology.errors import InputError
    from topology.exporters import cluster_to_yaml
    from topology.files import write_whole
    from topology.importers import ImportOptions, import_files

    if output.suffix.lower() not in (".yaml", ".yml"):
        raise InputError(f"-o {output}: the cluster file must end in .yaml.")
    options = ImportOptions(
        kind=kind,
        gpu=gpu,
        gpus_per_node=gpus_per_node,
        fabrics=tuple(fabric or ()),
        nic=nic,
        uplink=uplink,
        pcie=pcie,
        socket_link=socket_link,
        hbm=hbm,
        oversubscription=oversubscription,
        domains=domains,
        hosts=hosts,
        topology=topology,
        name=name,
    )
    imported = import_files(files, options)
    text = cluster_to_yaml(
        imported.spec, import_comments(imported, __version__), rates_unusual=imported.rates_unusual
    )
    _check_readable(text)
    write_whole(output, text.encode())
    if json:
        print_json(import_json(imported, output))
    else:
        print_text(import_summary(imported, output))


def _check_readable(text: str) -> None:
    """Read the text back before it replaces anything: what other commands would refuse is not written."""
    from tempfile import TemporaryDirectory

    from topology.cluster_file import read_cluster_file

    with TemporaryDirectory() as folder:
        path = Path(folder) / "imported.yaml"
        path.write_text(text, encoding="utf-8")
        read_cluster_file(path)
