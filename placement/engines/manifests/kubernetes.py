"""What the manifests of Kubernetes share: the plan file in a ConfigMap, the container that serves, YAML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from placement.engines.manifests.pools import Pool
from topology.base.errors import InputError

MOST_BYTES = 1 << 20
"""Of a ConfigMap: https://kubernetes.io/docs/concepts/configuration/configmap/."""
FOLDER = "/etc/rackplan"
IMAGE, CLAIM, RESOURCE = "<IMAGE>", "<CLAIM>", "<gpu-resource>"
"""What nobody can know but the user: Kubernetes refuses each until it is replaced."""
_RESOURCES = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu"}
"""As the device plug-ins of the vendors call a GPU."""
_LONGEST_NAME = 46
"""Of 63: what controllers add to the name of a pod comes on top."""

Document = dict[str, Any]


def dns_name(text: str) -> str:
    """Return ``text`` as a name that Kubernetes takes: lower case, digits, hyphens."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_LONGEST_NAME].strip("-")
    return name if name[:1].isalpha() else f"m-{name}".strip("-")


def label(text: str) -> str:
    """Return ``text`` as the value of a label."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[-63:].strip("-._")


def files_of(pool: Pool) -> dict[str, str]:
    """Return the files that a pod needs: the plan file, and what the engine reads beside it."""
    launch = pool.launched(file=f"{FOLDER}/{pool.map_name}")
    return {pool.map_name: pool.exported.text, **pool.engine.files(launch)}


def fits_config_map(files: Mapping[str, str]) -> bool:
    """Whether files are small enough for a ConfigMap."""
    return sum(len(name) + len(text.encode()) for name, text in files.items()) <= MOST_BYTES


def config_map(pool: Pool) -> list[Document]:
    """Return the ConfigMap with the files of a pool; none where they are too large."""
    files = files_of(pool)
    if not fits_config_map(files):
        return []
    metadata = {"name": f"{pool.name}-experts"}
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True, "data": files}]


def volumes(pool: Pool) -> list[Document]:
    """Return the volumes of a pod: shared memory, and the plan file."""
    held: Document = {"name": "experts", "configMap": {"name": f"{pool.name}-experts"}}
    if not fits_config_map(files_of(pool)):
        held = {"name": "experts", "persistentVolumeClaim": {"claimName": CLAIM, "readOnly": True}}
    return [held, {"name": "dshm", "emptyDir": {"medium": "Memory"}}]


def script(lines: Sequence[str]) -> str:
    """Return lines of a command as one command of a shell that replaces it."""
    start = "exec env " if re.match(r"[A-Z_]+=", lines[0]) else "exec "
    return start + " \\\n  ".join(lines) + "\n"


def container(pool: Pool, name: str, image: str, lines: Sequence[str], port: int | None) -> Document:
    """Return the container that serves ``pool`` with a command; ``port`` is where every pod answers, if it does."""
    gpus = sum(len(group.devices) for group in pool.replicas[0] if pool.hosts[0] in group.hosts)
    found: Document = {
        "name": name,
        "image": image or IMAGE,
        "command": ["/bin/bash", "-c"],
        "args": [script(lines)],
        "resources": {"limits": {_RESOURCES.get(pool.gpu_vendor, RESOURCE): str(gpus)}},
        "volumeMounts": [
            {"name": "experts", "mountPath": FOLDER, "readOnly": True},
            {"name": "dshm", "mountPath": "/dev/shm"},  # noqa: S108 - inside the container
        ],
    }
    if port is not None:
        found["ports"] = [{"name": "http", "containerPort": port}]
        found["readinessProbe"] = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 10}
    return found


def affinity(pool: Pool) -> Document:
    """Return what keeps pods on the hosts of the plan; nothing where their names are not the user's."""
    if not pool.named:
        return {}
    hosts = sorted({host for group in pool.groups for host in group.hosts})
    one = {"key": "kubernetes.io/hostname", "operator": "In", "values": hosts}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [one]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def notes_of(pools: Iterable[Pool], image: str) -> list[str]:
    """Return what a person must do before the manifest starts anything, and what it cannot say."""
    found = [] if image else [f"{IMAGE} stands for the image: give option `image`"]
    for pool in pools:
        size = sum(len(text.encode()) for text in files_of(pool).values())
        if not fits_config_map(files_of(pool)):
            found.append(
                f"{pool.map_name} has {size:,} bytes, a ConfigMap holds {MOST_BYTES:,}: {CLAIM} stands for a volume "
                f"claim that has {', '.join(files_of(pool))}"
            )
        if pool.gpu_vendor not in _RESOURCES:
            found.append(f"{RESOURCE} stands for what the device plug-in of {pool.gpu_vendor} calls a GPU")
        if not pool.whole_hosts:
            devices = ", ".join(map(str, pool.groups[0].devices))
            found.append(
                f"{pool.name}: the plan has GPUs {devices} of each host; Kubernetes hands out any that are free, in "
                "an order of its own"
            )
        if len(pool.hosts) > 1:
            found.append(
                f"{pool.name}: pods are numbered as hosts of the plan, and Kubernetes chooses the host of each: all "
                "pods of a replica must come to hosts that are linked as the plan's are"
            )
    if not any(pool.named for pool in pools):
        found.append("hosts have the names of the plan's cluster: with option `hosts` pods are kept on yours")
    return list(dict.fromkeys(found))


def require_framework(pool: Pool, known: Sequence[str], what: str) -> str:
    """Return the framework of a pool's engine, as ``what`` calls it.

    Raises
    ------
    InputError
        If ``what`` does not run it.
    """
    if pool.engine.framework in known:
        return pool.engine.framework
    raise InputError(
        f"it runs {', '.join(known)}, not {pool.engine.title}; lws or slurm may start it.",
        field="launch",
        value=what,
    )


class _Dumper(yaml.SafeDumper):
    """YAML without aliases, texts of several lines as they are."""

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def yaml_of(documents: Iterable[Document], header: Sequence[str]) -> str:
    """Return documents as one YAML file, with comments first."""
    head = "".join(f"# {line}\n" for line in header)
    parts = [yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=10**6) for document in documents]
    return head + "---\n".join(parts)
