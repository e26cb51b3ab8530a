"""A cluster with scale-up domains of another size and unchanged links per GPU."""

from __future__ import annotations

from dataclasses import replace

from topology.base.errors import InputError
from topology.build import build_cluster
from topology.cluster import Cluster
from topology.files.resolve import fill_domains
from topology.structures.switch import SwitchDomain


def with_domain_gpus(cluster: Cluster, gpus: int) -> Cluster:
    """Return as many GPUs of a cluster in scale-up domains of ``gpus`` each, the last of which may be partial.

    Links and their rates, hosts and the network between domains stay what they are for each GPU; figures of a whole
    domain (its power) are left out, since nobody published those of another size.

    Raises
    ------
    InputError
        If the cluster has domains of several kinds or faults, or its domains are not behind one tier of switches; if
        they cannot be of that size; if there are several and nothing is known of a network between them.
    """
    spec, where = cluster.spec, f"`domain_gpus` {gpus}"
    original = spec.domains[0]
    homogeneous = all(
        replace(domain, gpus=original.gpus) == original for domain in dict.fromkeys(spec.domains)
    )
    if spec.raw is not None or spec.faults or not homogeneous or not isinstance(original, SwitchDomain):
        raise InputError(
            f"{where}: {cluster.name} must have domains of one kind with a single tier of switches, and no faults."
        )
    if gpus == original.gpus:
        return cluster
    step = original.gpus_per_node
    if gpus < 1 or (gpus % step and gpus > step):
        raise InputError(
            f"{where}: expected whole nodes ({step} GPUs each), like {max(1, gpus // step) * step}."
        )
    total = len(cluster.gpus)
    if gpus > total:
        raise InputError(f"{where}: {cluster.name} has {total} GPUs in total; request more with name@{gpus}.")
    if gpus < total and spec.scale_out is None:
        raise InputError(f"{where}: the network between domains of {cluster.name} is unknown.")
    figures = {name: figure for name, figure in original.figures.items() if not name.startswith("domain_")}
    domain = replace(original, gpus=gpus, gpus_per_node=min(step, gpus), figures=figures)
    return build_cluster(fill_domains(cluster.name, domain, spec.scale_out, total))
